"""Collectives of the table ccl.1: when they run, and what they leave as it is."""

import ctypes
import struct
from collections.abc import Callable
from contextlib import ExitStack, nullcontext

import pytest

from torch_backend.abi import CopyKind, DeviceLibrary, DTypeCode, Reduction, Status, tb_dtype
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._ranks import RANKS, Rank, names_of, need_slots, on_every_rank
from torch_conformance.suite.abi._support import Hold, expect_bytes, host_memory, memory, pattern, some_streams

pytestmark = [needs.table("ccl.1"), needs.devices(RANKS)]

_INT = tb_dtype(DTypeCode.INT, 32, 1)
_PART = 250
_SIZE = 4 * RANKS * _PART
_EARLY_SECONDS = 0.02

_Call = Callable[[Rank, int, int, int | None], int]


def _given(rank: int) -> list[int]:
    return [(rank + 1) * (i + 1) for i in range(RANKS * _PART)]


def _bytes(values: list[int]) -> bytes:
    return struct.pack(f"{len(values)}i", *values)


_UNTOUCHED = pattern(_SIZE, seed=9)
_SUM = [sum(values) for values in zip(*map(_given, range(RANKS)), strict=True)]


def _part(values: list[int], number: int) -> list[int]:
    return values[number * _PART : (number + 1) * _PART]


def _exchange(rank: Rank, src: int, dst: int, stream: int | None) -> int:
    """all_to_all, whose counts and offsets are gone when it has returned."""
    counts, offsets = ((ctypes.c_uint64 * RANKS)(*values) for values in ((_PART, _PART), (0, _PART)))
    status = rank.status("all_to_all", src, counts, offsets, dst, counts, offsets, _INT, rank.comm, stream)
    for array in (counts, offsets):
        ctypes.memset(array, 0, ctypes.sizeof(array))
    return status


_COLLECTIVES: dict[str, tuple[_Call, Callable[[int], list[int]]]] = {
    "send": (
        lambda rank, src, dst, stream: rank.status(
            *(("send", src) if rank.number == 0 else ("recv", dst)), RANKS * _PART, _INT, rank.peer, rank.comm, stream
        ),
        lambda number: _given(0) if number == 1 else [],
    ),
    "all_reduce": (
        lambda rank, src, dst, stream: rank.status(
            "all_reduce", src, dst, RANKS * _PART, _INT, Reduction.SUM, rank.comm, stream
        ),
        lambda number: _SUM,
    ),
    "reduce": (
        lambda rank, src, dst, stream: rank.status(
            "reduce", src, dst, RANKS * _PART, _INT, Reduction.SUM, 1, rank.comm, stream
        ),
        lambda number: _SUM if number == 1 else [],
    ),
    "broadcast": (
        lambda rank, src, dst, stream: rank.status("broadcast", src, dst, RANKS * _PART, _INT, 1, rank.comm, stream),
        lambda number: _given(1),
    ),
    "all_gather": (
        lambda rank, src, dst, stream: rank.status("all_gather", src, dst, _PART, _INT, rank.comm, stream),
        lambda number: [value for sender in range(RANKS) for value in _part(_given(sender), 0)],
    ),
    "reduce_scatter": (
        lambda rank, src, dst, stream: rank.status(
            "reduce_scatter", src, dst, _PART, _INT, Reduction.SUM, rank.comm, stream
        ),
        lambda number: _part(_SUM, number),
    ),
    "all_to_all": (
        _exchange,
        lambda number: [value for sender in range(RANKS) for value in _part(_given(sender), number)],
    ),
}
"""How each is called, and what it writes at the start of the output of a rank."""


@promise("tb_ccl_table 1.3")
@pytest.mark.parametrize("slot", _COLLECTIVES)
def test_collectives_take_their_place_on_their_stream(library: DeviceLibrary, slot: str) -> None:
    """A collective reads what earlier work on its stream wrote, later work sees its result, its input stays."""
    need_slots(library, slot)
    call, expected = _COLLECTIVES[slot]
    statuses: dict[tuple[int, int], int] = {}
    seen: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def work(rank: Rank) -> None:
        device = rank.device
        can_hold = device.is_async and "stream_host_function" in library.core
        with some_streams(device) as streams, ExitStack() as stack:
            src, dst = (stack.enter_context(memory(device, _SIZE)) for _ in range(2))
            given, earlier, later, inputs, outputs = (
                stack.enter_context(host_memory(device, data))
                for data in (_bytes(_given(rank.number)), _UNTOUCHED, pattern(_SIZE), bytes(_SIZE), bytes(_SIZE))
            )
            for turn, stream in enumerate(streams):
                device.write(src, bytes(_SIZE))
                device.write(dst, bytes(_SIZE))
                with Hold(device, stream) if can_hold else nullcontext() as hold:
                    device.copy(src, given, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    device.copy(dst, earlier, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    statuses[rank.number, turn] = call(rank, src, dst, stream)
                    for buffer, address in ((inputs, src), (outputs, dst)):
                        device.copy(buffer, address, _SIZE, CopyKind.DEVICE_TO_HOST, stream)
                    for address in (src, dst):
                        device.copy(address, later, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    if hold is not None:
                        # One rank's data is there while the other is held.
                        hold.let_run_early((1 + rank.number) * _EARLY_SECONDS)
                device.synchronize(stream)
                device.synchronize()  # what went to another stream ends before its memory does
                seen[rank.number, turn] = ctypes.string_at(inputs, _SIZE), ctypes.string_at(outputs, _SIZE)

    on_every_rank(library, work)
    if set(statuses.values()) == {Status.UNSUPPORTED}:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    assert set(statuses.values()) == {Status.OK}, f"{slot} returned {names_of(statuses.values())}"
    for (number, turn), (inputs, outputs) in sorted(seen.items()):
        what = f"rank {number}: {slot} between copies on {'a created' if turn else 'the default'} stream"
        made = _bytes(expected(number))
        expect_bytes(outputs, made + _UNTOUCHED[len(made) :], f"{what}: its output")
        expect_bytes(inputs, _bytes(_given(number)), f"{what}: its input afterwards")
