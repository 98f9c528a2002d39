"""The table ccl.1: devices that send each other data."""

import ctypes
import struct
from collections.abc import Callable

from torch_backend.abi import (
    REQUIRED_CCL_SLOTS,
    Device,
    DeviceError,
    DeviceLibrary,
    DTypeCode,
    Reduction,
    Status,
    tb_dtype,
)
from torch_backend.testing import needs
from torch_backend.testing.suite.abi._support import expect_bytes, in_threads, memory, pattern

pytestmark = needs.table("ccl.1")

_COUNT = 1001
_BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
_FLOAT = tb_dtype(DTypeCode.FLOAT, 32, 1)
_RANKS = 2


def _status(library: DeviceLibrary, slot: str, *arguments: object) -> int:
    return library.noted(getattr(library.tables["ccl.1"], slot)(*arguments))


def _check(library: DeviceLibrary, slot: str, *arguments: object) -> None:
    status = _status(library, slot, *arguments)
    if status != Status.OK:
        raise DeviceError(slot, status, library.error_text())


def _on_every_rank(library: DeviceLibrary, work: Callable[[int, Device, int], None]) -> None:
    """Call ``work(rank, device, comm)`` in a thread for each rank.

    It must not fail because of what it received: the other ranks would wait for it.
    """
    unique_id = ctypes.create_string_buffer(library.tables["ccl.1"].unique_id_bytes)
    _check(library, "unique_id_create", unique_id)

    def run(rank: int) -> None:
        device = library.devices[rank]
        comm = ctypes.c_void_p()
        _check(library, "comm_create", device.index, _RANKS, rank, unique_id, ctypes.byref(comm))
        assert comm.value is not None, f"comm_create gave rank {rank} no communicator"
        work(rank, device, comm.value)
        _check(library, "comm_destroy", comm)

    in_threads(_RANKS, run)


def test_required_slots_are_set(library: DeviceLibrary) -> None:
    """The slots that the table needs are set, groups begin and end, and a unique id has a size."""
    table = library.tables["ccl.1"]
    unset = [slot for slot in REQUIRED_CCL_SLOTS if slot not in table]
    assert not unset, f"the table ccl.1 is offered, but these slots are unset: {', '.join(unset)}"
    assert ("group_begin" in table) == ("group_end" in table), "only one of group_begin and group_end is set"
    assert table.unique_id_bytes > 0, "unique_id_bytes is 0"


def test_unique_ids_differ(library: DeviceLibrary) -> None:
    """Two unique ids are not the same."""
    ids = [ctypes.create_string_buffer(library.tables["ccl.1"].unique_id_bytes) for _ in range(2)]
    for unique_id in ids:
        _check(library, "unique_id_create", unique_id)
    assert ids[0].raw != ids[1].raw, "unique_id_create gave the same id twice"


@needs.devices(_RANKS)
def test_what_is_sent_is_received(library: DeviceLibrary) -> None:
    """What one rank sends arrives at the other, in both directions and in order."""
    received: dict[int, bytes] = {}

    def work(rank: int, device: Device, comm: int) -> None:
        peer = 1 - rank
        for turn in range(4):
            with memory(device, _COUNT) as address:
                if (rank + turn) % 2 == 0:
                    device.write(address, pattern(_COUNT, seed=turn))
                    _check(library, "send", address, _COUNT, _BYTE, peer, comm, None)
                    device.synchronize()
                else:
                    device.write(address, bytes(_COUNT))
                    _check(library, "recv", address, _COUNT, _BYTE, peer, comm, None)
                    device.synchronize()
                    received[turn] = device.read(address, _COUNT)

    _on_every_rank(library, work)
    for turn, data in received.items():
        expect_bytes(data, pattern(_COUNT, seed=turn), f"message {turn}")


@needs.devices(_RANKS)
def test_sums_are_the_same_on_all_ranks(library: DeviceLibrary) -> None:
    """all_reduce gives every rank the sum over the ranks."""
    if "all_reduce" not in library.tables["ccl.1"]:
        needs.not_offered("the table ccl.1 leaves the slot all_reduce unset")
    size = 4 * _COUNT
    statuses: list[int] = []
    sums: dict[int, bytes] = {}

    def work(rank: int, device: Device, comm: int) -> None:
        with memory(device, size) as src, memory(device, size) as dst:
            device.write(src, struct.pack(f"{_COUNT}f", *(float(i * (rank + 1)) for i in range(_COUNT))))
            status = _status(library, "all_reduce", src, dst, _COUNT, _FLOAT, Reduction.SUM, comm, None)
            statuses.append(status)
            device.synchronize()
            sums[rank] = device.read(dst, size)

    _on_every_rank(library, work)
    if set(statuses) == {Status.UNSUPPORTED}:
        needs.not_offered("all_reduce answered UNSUPPORTED")
    assert set(statuses) == {Status.OK}, f"all_reduce returned {statuses}"
    expected = struct.pack(f"{_COUNT}f", *(float(3 * i) for i in range(_COUNT)))
    for rank, data in sums.items():
        expect_bytes(data, expected, f"rank {rank}: the sum of {_COUNT} numbers")
