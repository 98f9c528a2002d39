"""The collectives of the table ccl.1, which a device may leave to the core."""

import ctypes
import struct
from collections.abc import Callable
from functools import reduce

import pytest

from torch_backend.abi import TORCH_DTYPES, DeviceLibrary, DTypeCode, Reduction, Status, tb_dtype
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._numbers import element, is_complex, stored
from torch_conformance.suite.abi._ranks import RANKS, Rank, names_of, need_slots, on_every_rank
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern

pytestmark = [needs.table("ccl.1"), needs.devices(RANKS)]

_BYTE = tb_dtype(DTypeCode.UINT, 8, 1)
_FLOAT = tb_dtype(DTypeCode.FLOAT, 32, 1)
_PART = 1001
_LARGE = 700_001
_REPEATS = 250

# Whatever is made of them is a whole number that every dtype holds.
_NUMBERS = {0: (1, 2, 1, 2), 1: (3, 2, 1, 4)}
_IMAGINARY = {0: (2, 1, 0, 1), 1: (0, 1, 2, 3)}
_BOOLS = {0: (0, 0, 1, 1), 1: (0, 1, 0, 1)}

_REDUCED: dict[Reduction, Callable[[complex, complex], complex]] = {
    Reduction.SUM: lambda a, b: a + b,
    Reduction.PRODUCT: lambda a, b: a * b,
    Reduction.MIN: lambda a, b: complex(min(a.real, b.real)),
    Reduction.MAX: lambda a, b: complex(max(a.real, b.real)),
    Reduction.AVERAGE: lambda a, b: (a + b) / 2,
}


def _is_defined(dtype: str, reduction: Reduction) -> bool:
    """Whether there is such a thing: complex numbers have no order, and bools no average."""
    if dtype == "bool":
        return reduction != Reduction.AVERAGE
    return not (is_complex(dtype) and reduction in (Reduction.MIN, Reduction.MAX))


def _values(dtype: str, rank: int) -> list[complex]:
    if dtype == "bool":
        return [complex(v) for v in _BOOLS[rank]]
    imaginary = _IMAGINARY[rank] if is_complex(dtype) else (0,) * 4
    return [complex(*parts) for parts in zip(_NUMBERS[rank], imaginary, strict=True)]


def _reduced(dtype: str, reduction: Reduction) -> bytes:
    values = [reduce(_REDUCED[reduction], pair) for pair in zip(_values(dtype, 0), _values(dtype, 1), strict=True)]
    if dtype == "bool":  # a sum of bools is one
        values = [complex(v != 0) for v in values]
    return b"".join(stored(dtype, v) for v in values) * _REPEATS


def _run(library: DeviceLibrary, slot: str, work: Callable[[Rank], int]) -> None:
    """Call ``work`` on every rank, which calls ``slot`` and returns its status."""
    need_slots(library, slot)
    statuses: dict[int, int] = {}

    def noted(rank: Rank) -> None:
        statuses[rank.number] = work(rank)

    on_every_rank(library, noted)
    if set(statuses.values()) == {Status.UNSUPPORTED}:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    assert set(statuses.values()) == {Status.OK}, f"{slot} returned {names_of(statuses.values())}"


def _collect(rank: Rank, into: dict[int, bytes], address: int, size_bytes: int) -> None:
    rank.device.synchronize()
    into[rank.number] = rank.device.read(address, size_bytes)


@promise("tb_ccl_table 1.2")
@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        pytest.param(dtype, reduction, marks=needs.dtype(dtype), id=f"{dtype}-{reduction.name}")
        for dtype in TORCH_DTYPES
        for reduction in Reduction
        if _is_defined(dtype, reduction)
    ],
)
def test_all_reduce_computes(library: DeviceLibrary, dtype: str, reduction: Reduction) -> None:
    """all_reduce computes in every dtype that it takes, and writes no more than the result."""
    expected = _reduced(dtype, reduction)
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        data = b"".join(stored(dtype, v) for v in _values(dtype, rank.number)) * _REPEATS
        with memory(rank.device, len(data)) as src, memory(rank.device, len(data) + 64) as dst:
            rank.device.write(src, data)
            rank.device.write(dst, pattern(len(data) + 64))
            status = rank.status("all_reduce", src, dst, 4 * _REPEATS, element(dtype), reduction, rank.comm, None)
            _collect(rank, results, dst, len(data) + 64)
        return status

    _run(library, "all_reduce", work)
    for number, data in sorted(results.items()):
        what = f"rank {number}: {reduction.name} of {dtype}"
        expect_bytes(data[: len(expected)], expected, what)
        expect_bytes(data[len(expected) :], pattern(len(data))[len(expected) :], f"{what}: the bytes behind it")


@promise("tb_ccl_table 2.1")
def test_all_reduce_in_place_of_many(library: DeviceLibrary) -> None:
    """all_reduce of many numbers may write its result over its input."""
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        size = 4 * _LARGE
        with memory(rank.device, size) as address:
            rank.device.write(
                address, struct.pack(f"{_LARGE}f", *(float(i % 1000 + rank.number) for i in range(_LARGE)))
            )
            status = rank.status("all_reduce", address, address, _LARGE, _FLOAT, Reduction.SUM, rank.comm, None)
            _collect(rank, results, address, size)
        return status

    _run(library, "all_reduce", work)
    expected = struct.pack(f"{_LARGE}f", *(float(2 * (i % 1000) + 1) for i in range(_LARGE)))
    for number, data in sorted(results.items()):
        expect_bytes(data, expected, f"rank {number}: the sum of {_LARGE} numbers, in place")


_places = pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in-place"])


@promise("tb_ccl_table 2.1")
@_places
@pytest.mark.parametrize("root", range(RANKS))
def test_reduce_gives_the_root_the_result(library: DeviceLibrary, root: int, in_place: bool) -> None:
    """Reduce writes the result at the root, and nothing at the other rank."""
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        data = b"".join(stored("int32", v) for v in _values("int32", rank.number)) * _REPEATS
        with memory(rank.device, len(data)) as src, memory(rank.device, len(data)) as apart:
            dst = src if in_place else apart
            rank.device.write(apart, pattern(len(data)))
            rank.device.write(src, data)
            status = rank.status(
                "reduce", src, dst, 4 * _REPEATS, element("int32"), Reduction.SUM, root, rank.comm, None
            )
            _collect(rank, results, dst, len(data))
        return status

    _run(library, "reduce", work)
    expected = _reduced("int32", Reduction.SUM)
    expect_bytes(results[root], expected, f"the sum at the root, rank {root}")
    if not in_place:
        expect_bytes(results[1 - root], pattern(len(expected)), f"out of rank {1 - root}, which is not the root")


@promise("tb_ccl_table 2.1")
@_places
@pytest.mark.parametrize("root", range(RANKS))
def test_broadcast_gives_all_what_the_root_has(library: DeviceLibrary, root: int, in_place: bool) -> None:
    """Broadcast writes what the root has on every rank, the root included."""
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        with memory(rank.device, _PART) as src, memory(rank.device, _PART) as apart:
            dst = src if in_place else apart
            rank.device.write(apart, bytes(_PART))
            rank.device.write(src, pattern(_PART, seed=rank.number))
            status = rank.status("broadcast", src, dst, _PART, _BYTE, root, rank.comm, None)
            _collect(rank, results, dst, _PART)
        return status

    _run(library, "broadcast", work)
    for number, data in sorted(results.items()):
        expect_bytes(data, pattern(_PART, seed=root), f"rank {number}: what rank {root} broadcast")


@promise("tb_ccl_table 1.2")
def test_all_gather_puts_parts_in_order(library: DeviceLibrary) -> None:
    """all_gather writes the parts of all ranks, in their order, on every rank."""
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        with memory(rank.device, _PART) as src, memory(rank.device, RANKS * _PART) as dst:
            rank.device.write(src, pattern(_PART, seed=rank.number))
            rank.device.write(dst, bytes(RANKS * _PART))
            status = rank.status("all_gather", src, dst, _PART, _BYTE, rank.comm, None)
            _collect(rank, results, dst, RANKS * _PART)
        return status

    _run(library, "all_gather", work)
    expected = b"".join(pattern(_PART, seed=number) for number in range(RANKS))
    for number, data in sorted(results.items()):
        expect_bytes(data, expected, f"rank {number}: the parts of all ranks")


@promise("tb_ccl_table 1.2")
def test_reduce_scatter_gives_each_rank_its_part(library: DeviceLibrary) -> None:
    """reduce_scatter writes on every rank its own part of the sum."""
    results: dict[int, bytes] = {}

    def work(rank: Rank) -> int:
        values = [(rank.number + 1) * i for i in range(RANKS * _PART)]
        with memory(rank.device, 4 * RANKS * _PART) as src, memory(rank.device, 4 * _PART) as dst:
            rank.device.write(src, struct.pack(f"{RANKS * _PART}i", *values))
            rank.device.write(dst, bytes(4 * _PART))
            status = rank.status("reduce_scatter", src, dst, _PART, element("int32"), Reduction.SUM, rank.comm, None)
            _collect(rank, results, dst, 4 * _PART)
        return status

    _run(library, "reduce_scatter", work)
    for number, data in sorted(results.items()):
        part = [3 * i for i in range(number * _PART, (number + 1) * _PART)]
        expect_bytes(data, struct.pack(f"{_PART}i", *part), f"rank {number}: its part of the sum")


@promise("tb_ccl_table 1.2")
def test_all_to_all_takes_counts_and_offsets(library: DeviceLibrary) -> None:
    """all_to_all sends each rank its part, of any size and at any offset, in elements."""
    counts = {0: (3, 200), 1: (0, 17)}  # what each sends to whom
    send_offsets, recv_offsets, room = (5, 40), (300, 10), 600
    results: dict[int, bytes] = {}

    def numbers(values: tuple[int, ...]) -> "ctypes.Array[ctypes.c_uint64]":
        return (ctypes.c_uint64 * RANKS)(*values)

    def work(rank: Rank) -> int:
        received = tuple(counts[sender][rank.number] for sender in range(RANKS))
        with memory(rank.device, 2 * room) as src, memory(rank.device, 2 * room) as dst:
            rank.device.write(src, pattern(2 * room, seed=rank.number))
            rank.device.write(dst, bytes(2 * room))
            send = (numbers(counts[rank.number]), numbers(send_offsets))
            recv = (numbers(received), numbers(recv_offsets))
            status = rank.status("all_to_all", src, *send, dst, *recv, element("int16"), rank.comm, None)
            _collect(rank, results, dst, 2 * room)
        return status

    _run(library, "all_to_all", work)
    for number, data in sorted(results.items()):
        expected = bytearray(2 * room)
        for sender in range(RANKS):
            size = 2 * counts[sender][number]
            start, source = 2 * recv_offsets[sender], 2 * send_offsets[number]
            expected[start : start + size] = pattern(2 * room, seed=sender)[source : source + size]
        expect_bytes(data, bytes(expected), f"rank {number}: what all sent it")
