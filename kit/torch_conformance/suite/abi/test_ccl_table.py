"""The table ccl.1: devices that send each other data."""

import struct

from torch_backend.abi import DeviceLibrary, DTypeCode, Reduction, Status, tb_dtype
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._ranks import RANKS, Rank, names_of, need_slots, new_unique_id, on_every_rank
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern, run_child

pytestmark = needs.table("ccl.1")

_COUNT = 1001
_CROSSING_BYTES = 5_000_001  # more than what a device may keep for later
_BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
_FLOAT = tb_dtype(DTypeCode.FLOAT, 32, 1)


@promise("tb_ccl_table 1.1")
def test_required_slots_are_set(library: DeviceLibrary) -> None:
    """The slots that the table needs are set, groups begin and end, and a unique id has a size."""
    table = library.tables["ccl.1"]
    unset = table.lacks
    assert not unset, f"the table ccl.1 is offered, but these slots are unset: {', '.join(unset)}"
    assert ("group_begin" in table) == ("group_end" in table), "only one of group_begin and group_end is set"
    assert table.unique_id_bytes > 0, "unique_id_bytes is 0"


@promise("unique_id_create")
def test_unique_ids_differ(library: DeviceLibrary) -> None:
    """Two unique ids are not the same."""
    ids = [new_unique_id(library) for _ in range(2)]
    assert ids[0].raw != ids[1].raw, "unique_id_create gave the same id twice"


@promise("tb_ccl_table 1.1")
@needs.devices(RANKS)
def test_what_is_sent_is_received(library: DeviceLibrary) -> None:
    """What one rank sends arrives at the other, in both directions and in order."""
    received: dict[int, bytes] = {}

    def work(rank: Rank) -> None:
        for turn in range(4):
            with memory(rank.device, _COUNT) as address:
                if (rank.number + turn) % 2 == 0:
                    rank.device.write(address, pattern(_COUNT, seed=turn))
                    rank.send(address, _COUNT, _BYTE)
                    rank.device.synchronize()
                else:
                    rank.device.write(address, bytes(_COUNT))
                    rank.recv(address, _COUNT, _BYTE)
                    rank.device.synchronize()
                    received[turn] = rank.device.read(address, _COUNT)

    on_every_rank(library, work)
    for turn, data in received.items():
        expect_bytes(data, pattern(_COUNT, seed=turn), f"message {turn}")


@promise("tb_ccl_table 1.1")
@needs.devices(RANKS)
def test_empty_messages_keep_their_place(library: DeviceLibrary) -> None:
    """A message of no elements is sent and received like any other, and the next one arrives whole."""
    statuses: list[int] = []
    received: list[bytes] = []

    def work(rank: Rank) -> None:
        with memory(rank.device, _COUNT) as address:
            slot = "send" if rank.number == 0 else "recv"
            rank.device.write(address, pattern(_COUNT) if rank.number == 0 else bytes(_COUNT))
            statuses.append(rank.status(slot, address, 0, _BYTE, rank.peer, rank.comm, None))
            rank.check(slot, address, _COUNT, _BYTE, rank.peer, rank.comm, None)
            rank.device.synchronize()
            if rank.number == 1:
                received.append(rank.device.read(address, _COUNT))

    on_every_rank(library, work)
    assert set(statuses) == {Status.OK}, f"send and recv of 0 elements returned {names_of(statuses)}"
    expect_bytes(received[0], pattern(_COUNT), "the message after the empty one")


@promise("tb_ccl_table 1.1")
@needs.devices(RANKS)
def test_messages_cross_in_a_group(library: DeviceLibrary) -> None:
    """Between group_begin and group_end two ranks send each other more than any buffer holds, and neither waits."""
    need_slots(library, "group_begin", "group_end")
    received: dict[int, bytes] = {}

    def work(rank: Rank) -> None:
        with memory(rank.device, _CROSSING_BYTES) as src, memory(rank.device, _CROSSING_BYTES) as dst:
            rank.device.write(src, pattern(_CROSSING_BYTES, seed=rank.number))
            rank.device.write(dst, bytes(_CROSSING_BYTES))
            rank.check("group_begin")
            rank.send(src, _CROSSING_BYTES, _BYTE)
            rank.recv(dst, _CROSSING_BYTES, _BYTE)
            rank.check("group_end")
            rank.device.synchronize()
            received[rank.number] = rank.device.read(dst, _CROSSING_BYTES)

    on_every_rank(library, work)
    for number, data in sorted(received.items()):
        expect_bytes(data, pattern(_CROSSING_BYTES, seed=1 - number), f"what rank {number} received in the group")


@promise("tb_ccl_table 1.1")
@needs.devices(RANKS)
def test_sums_are_the_same_on_all_ranks(library: DeviceLibrary) -> None:
    """all_reduce gives every rank the sum over the ranks."""
    need_slots(library, "all_reduce")
    size = 4 * _COUNT
    statuses: list[int] = []
    sums: dict[int, bytes] = {}

    def work(rank: Rank) -> None:
        with memory(rank.device, size) as src, memory(rank.device, size) as dst:
            rank.device.write(src, struct.pack(f"{_COUNT}f", *(float(i * (rank.number + 1)) for i in range(_COUNT))))
            statuses.append(rank.status("all_reduce", src, dst, _COUNT, _FLOAT, Reduction.SUM, rank.comm, None))
            rank.device.synchronize()
            sums[rank.number] = rank.device.read(dst, size)

    on_every_rank(library, work)
    if set(statuses) == {Status.UNSUPPORTED}:
        needs.not_offered("all_reduce answered UNSUPPORTED")
    assert set(statuses) == {Status.OK}, f"all_reduce returned {names_of(statuses)}"
    expected = struct.pack(f"{_COUNT}f", *(float(3 * i) for i in range(_COUNT)))
    for number, data in sorted(sums.items()):
        expect_bytes(data, expected, f"rank {number}: the sum of {_COUNT} numbers")


@promise("unique_id_create")
def test_ranks_of_two_processes_exchange(library: DeviceLibrary) -> None:
    """Ranks in two processes, as torch.distributed has them, send each other data."""
    said = run_child(library, "exchange_with_another_process", module="_rank_process")
    if said:
        shared = " that shares the device" if library.device_count < RANKS else ""
        needs.not_offered(f"comm_create answered {said.split()[0]} to a rank of another process{shared}")
