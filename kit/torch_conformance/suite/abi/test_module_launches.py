"""Launches of the functions of modules: what they are given, and when they run."""

import ctypes
import struct
from contextlib import ExitStack

import pytest

from torch_backend.abi import CopyKind, DeviceLibrary
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._module_sources import Mixed, sum_of
from torch_conformance.suite.abi._modules import (
    ONE,
    Launch,
    Local,
    Modules,
    Parameter,
    Pointer,
    Shape,
    modules_of,
)
from torch_conformance.suite.abi._support import (
    GUARD_BYTES,
    Hold,
    expect_bytes,
    host_memory,
    memory,
    pattern,
    some_streams,
)
from torch_conformance.threads import in_numbered_threads

pytestmark = needs.table("kernels.1")

_MIXED = Mixed(-5, 70000, -300, 1 << 20, 2.5, (ctypes.c_uint8 * 3)(1, 200, 255))
_BLOCKS: list[Shape] = [ONE, (2, 1, 1), (3, 2, 1), (2, 2, 2)]
_THREADS, _TURNS = 4, 25
_LOCAL_BYTES = 1 << 10


def _shifted(data: bytes, add: int) -> bytes:
    return bytes((byte + add) % 256 for byte in data)


@promise("kernels.1 2 7, TB_PARAM_VALUE")
def test_values_arrive_whole(library: DeviceLibrary) -> None:
    """Values of any size are laid out as on the host: numbers, and structs with gaps."""
    values: list[Parameter] = [_MIXED, ctypes.c_uint8(250), ctypes.c_int64(-77 << 32)]
    expected = sum_of(_MIXED, 250, -77 << 32)
    for modules in modules_of(library):
        device = modules.device
        with some_streams(device) as streams, memory(device, 12) as out:
            for stream in streams:
                device.write(out, bytes(12), stream)
                modules.launch("sum", Launch([Pointer(out), *values], grid=(3, 1, 1)), stream)
                numbers = list(struct.unpack("3i", device.read(out, 12, stream)))
                assert numbers == [expected, expected + 1, expected + 2], (
                    f"{modules}: a function added up what its values hold to {numbers[0]} instead of {expected}, and "
                    f"gave {numbers}"
                )


@promise("kernels.1 4 6, TB_PARAM_POINTER")
@pytest.mark.parametrize("offset", [0, 1, 13, 64, 4099])
def test_pointers_point_anywhere_in_memory(library: DeviceLibrary, offset: int) -> None:
    """A pointer into an allocation, of any alignment, is what the function gets; nothing else is written."""
    count = 37
    data, before = pattern(offset + count, seed=1), pattern(offset + count + GUARD_BYTES, seed=2)
    expected = before[:offset] + _shifted(data[offset:], 3) + before[offset + count :]
    for modules in modules_of(library):
        device = modules.device
        with memory(device, len(data)) as src, memory(device, len(before)) as dst:
            device.write(src, data)
            device.write(dst, before)
            params = [Pointer(dst + offset), Pointer(src + offset), ctypes.c_int32(3)]
            modules.launch("shift", Launch(params, grid=(count, 1, 1)))
            expect_bytes(device.read(dst, len(before)), expected, f"{modules}: pointers {offset} bytes into memory")


@promise("TB_PARAM_POINTER")
def test_two_pointers_into_one_allocation(library: DeviceLibrary) -> None:
    """Several pointers of a launch may lie in one allocation."""
    data = pattern(100)
    for modules in modules_of(library):
        device = modules.device
        with memory(device, 200) as address:
            device.write(address, data + bytes(100))
            params = [Pointer(address + 101), Pointer(address + 1), ctypes.c_int32(-7)]
            modules.launch("shift", Launch(params, grid=(98, 1, 1)))
            expected = data + bytes(1) + _shifted(data[1:99], -7) + bytes(1)
            expect_bytes(device.read(address, 200), expected, f"{modules}: two pointers into one allocation")


@promise("TB_PARAM_POINTER")
def test_null_is_null(library: DeviceLibrary) -> None:
    """A pointer that is NULL is NULL in the function, whatever a launch before it was given."""
    for modules in modules_of(library):
        device = modules.device
        with memory(device, 8) as out, memory(device, 8) as given:
            device.write(given, bytes(range(8)))
            for source, expected in ((given, bytes(range(5, 13))), (None, b"\xcd" * 8)):
                modules.launch("shift", Launch([Pointer(out), Pointer(source), ctypes.c_int32(5)], grid=(8, 1, 1)))
                what = "NULL" if source is None else "memory"
                expect_bytes(device.read(out, 8), expected, f"{modules}: a function that was given {what}")


def _reverse(modules: Modules, local_bytes: int, count: int, block: Shape) -> None:
    num_blocks = 3
    device, data = modules.device, pattern(num_blocks * count)
    expected = b"".join(
        bytes(byte ^ (i % 256) for i, byte in enumerate(reversed(data[k * count : (k + 1) * count])))
        for k in range(num_blocks)
    )
    with memory(device, len(data)) as address:
        device.write(address, data)
        params = [Local(local_bytes), Local(local_bytes), Pointer(address), ctypes.c_uint32(count)]
        modules.launch("reverse", Launch(params, (num_blocks, 1, 1), block))
        what = f"{modules}: blocks of {block[0]} items with {local_bytes} bytes of local memory, twice"
        expect_bytes(device.read(address, len(data)), expected, what)


@promise("kernels.1 2 4 6, TB_PARAM_LOCAL")
def test_local_memory_is_the_blocks_own(library: DeviceLibrary) -> None:
    """Every local parameter is memory of its own, of the size that was asked for, and of one block."""
    for modules in modules_of(library):
        for items in sorted({1, min(4, modules.largest_row), modules.largest_row}):
            for local_bytes in (1, 37, _LOCAL_BYTES):
                _reverse(modules, local_bytes, local_bytes, (items, 1, 1))


@promise("tb_device_properties.local_memory_bytes, TB_PARAM_LOCAL")
def test_all_local_memory_can_be_used(library: DeviceLibrary) -> None:
    """A block may have as much local memory as the properties say."""
    for modules in modules_of(library):
        if modules.device.properties.local_memory_bytes:
            half = modules.device.properties.local_memory_bytes // 2 // 128 * 128
            _reverse(modules, half, half, ONE)


@promise("tb_device_properties.max_block, kernels.1 2, module_launch 1")
@pytest.mark.parametrize("block", _BLOCKS, ids=lambda block: "x".join(map(str, block)))
def test_every_item_runs_once_and_knows_where_it_is(library: DeviceLibrary, block: Shape) -> None:
    """Every block of a grid of three dimensions runs, and items know their place in it."""
    grid = (5, 3, 2)
    for modules in modules_of(library):
        if not modules.fits(block):
            needs.not_offered(f"blocks of {block} items are beyond max_block or max_block_items")
        width, height, depth = (blocks * items for blocks, items in zip(grid, block, strict=True))
        expected = [x + 1000 * y + 1000000 * z for z in range(depth) for y in range(height) for x in range(width)]
        size = 4 * len(expected)
        with memory(modules.device, size + GUARD_BYTES) as out:
            modules.device.write(out, b"\xff" * (size + GUARD_BYTES))
            modules.launch("where", Launch([Pointer(out)], grid, block))
            places = list(struct.unpack(f"{len(expected)}I", modules.device.read(out, size)))
            wrong = [i for i, (a, b) in enumerate(zip(places, expected, strict=True)) if a != b]
            assert not wrong, (
                f"{modules}: in a grid of {grid} blocks {len(wrong)} of {len(expected)} items are not where they "
                f"should be: item {wrong[0]} says {places[wrong[0]]} instead of {expected[wrong[0]]}"
            )
            behind = modules.device.read(out + size, GUARD_BYTES)
            expect_bytes(behind, b"\xff" * GUARD_BYTES, f"{modules}: behind what {len(expected)} items write")


@promise("tb_device_properties.max_block_items")
def test_the_largest_block_runs(library: DeviceLibrary) -> None:
    """A block of as many items as the limits allow runs, and one of preferred_block_items."""
    for modules in modules_of(library):
        preferred = modules.device.properties.preferred_block_items
        for items in {modules.largest_row, preferred or 1}:
            block = (items, 1, 1)
            if not modules.fits(block):
                continue
            with memory(modules.device, 8 * items) as out:
                modules.launch("where", Launch([Pointer(out)], (2, 1, 1), block))
                places = list(struct.unpack(f"{2 * items}I", modules.device.read(out, 8 * items)))
                assert places == list(range(2 * items)), f"{modules}: two blocks of {items} items gave {places}"


@promise("tb_device_properties.max_grid, module_launch 1")
def test_many_blocks_run(library: DeviceLibrary) -> None:
    """A grid may have more blocks than the device has processors."""
    count = 100_003
    for modules in modules_of(library):
        num_blocks = min(count, modules.device.properties.max_grid[0] or count)
        with memory(modules.device, 4 * num_blocks) as out:
            modules.launch("where", Launch([Pointer(out)], (num_blocks, 1, 1)))
            expected = struct.pack(f"{num_blocks}I", *range(num_blocks))
            expect_bytes(modules.device.read(out, 4 * num_blocks), expected, f"{modules}: {num_blocks} blocks")


# ---- when they run ----


@promise("module_launch 2")
def test_parameters_are_read_before_the_call_returns(library: DeviceLibrary) -> None:
    """Parameters, values, grid and block may be overwritten as soon as module_launch has returned."""
    expected = sum_of(_MIXED, 3, 9 << 32)
    for modules in modules_of(library):
        device = modules.device
        with some_streams(device) as streams, memory(device, 8) as out:
            for stream in streams:
                what = Launch([Pointer(out), _MIXED, ctypes.c_uint8(3), ctypes.c_int64(9 << 32)], grid=(2, 1, 1))
                device.write(out, bytes(8), stream)
                if device.is_async and "stream_host_function" in library.core:
                    with Hold(device, stream):
                        modules.launch("sum", what, stream)
                        what.spoil()
                else:
                    modules.launch("sum", what, stream)
                    what.spoil()
                numbers = list(struct.unpack("2i", device.read(out, 8, stream)))
                assert numbers == [expected, expected + 1], (
                    f"{modules}: a launch whose parameters were overwritten after the call gave {numbers} instead of "
                    f"{[expected, expected + 1]}"
                )


@promise("module_launch 1")
@needs.capability("ASYNC")
@needs.slot("stream_host_function")
def test_launches_are_in_the_order_of_their_stream(library: DeviceLibrary) -> None:
    """Launches run after what is on their stream, one after the other, and what follows waits for them."""
    for modules in modules_of(library):
        device = modules.device
        with device.stream() as stream, memory(device, 4) as number, memory(device, 4) as copy:
            device.write(number, struct.pack("i", 1000))
            device.write(copy, bytes(4))
            with host_memory(device, struct.pack("i", 1)) as first, Hold(device, stream):
                device.copy(number, first, 4, CopyKind.HOST_TO_DEVICE, stream)
                for add in (1, 2, 3):
                    modules.launch("advance", Launch([Pointer(number), ctypes.c_int32(add)]), stream)
                device.copy(copy, number, 4, CopyKind.DEVICE_TO_DEVICE, stream)
                modules.launch("advance", Launch([Pointer(number), ctypes.c_int32(0)]), stream)
            after = [struct.unpack("i", device.read(place, 4, stream))[0] for place in (copy, number)]
            in_order = 3 * (3 * (3 * 1 + 1) + 2) + 3
            assert after == [in_order, 3 * in_order], (
                f"{modules}: launches ran before what is on their stream, or after what follows: three of them and a "
                f"copy gave {after[0]} instead of {in_order}, and one more {after[1]} instead of {3 * in_order}"
            )


@promise("module_launch 1")
@needs.capability("ASYNC")
def test_many_launches_are_taken(library: DeviceLibrary) -> None:
    """A stream takes many launches, and they run one after the other."""
    count = 1000
    for modules in modules_of(library):
        device = modules.device
        with device.stream() as stream, memory(device, 4) as number:
            device.write(number, bytes(4))
            expected = 0
            for add in range(count):
                modules.launch("advance", Launch([Pointer(number), ctypes.c_int32(add % 7)]), stream)
                expected = (3 * expected + add % 7) % (1 << 32)
            after = int.from_bytes(device.read(number, 4, stream), "little")
            assert after == expected, f"{modules}: {count} launches on one stream gave {after} instead of {expected}"


@promise("module_launch 2")
def test_threads_launch_one_function(library: DeviceLibrary) -> None:
    """Threads may launch the same function at once, with parameters of their own."""
    for modules in modules_of(library):
        device = modules.device
        wrong: list[str] = []
        with ExitStack() as stack:
            # All there until all threads are done: a launch may write to another one's.
            places = [stack.enter_context(memory(device, 64)) for _ in range(_THREADS)]

            def launch(
                number: int, modules: Modules = modules, places: list[int] = places, wrong: list[str] = wrong
            ) -> None:
                device, out = modules.device, places[number]
                for turn in range(_TURNS):
                    add = (number * _TURNS + turn) % 56
                    modules.launch("shift", Launch([Pointer(out), Pointer(None), ctypes.c_int32(add)], grid=(64, 1, 1)))
                    if (read := device.read(out, 64)) != bytes([200 + add]) * 64:
                        wrong.append(f"thread {number}, turn {turn}: {read[:4]!r}... instead of {200 + add}")

            in_numbered_threads(_THREADS, launch)
            device.synchronize()
        assert not wrong, f"{modules}: launches of one function by {_THREADS} threads got mixed up: {wrong[0]}"
