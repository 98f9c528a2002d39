"""Memory: where it lies, that it is one's own, and that it runs out and comes back."""

import ctypes
import itertools

import pytest

from torch_backend.abi import Capability, CopyKind, Device, DeviceError, DeviceLibrary, MemoryKind, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import Hold, expect_bytes, host_memory, memory, pattern, total_bytes

_SIZES = (1, 2, 3, 7, 31, 63, 64, 65, 255, 511, 513, 4095, 4096, 4097, 65537, (1 << 20) + 1)
_KINDS = pytest.mark.parametrize("kind", [MemoryKind.DEVICE, MemoryKind.HOST, MemoryKind.SHARED], ids=lambda k: k.name)
_IMPOSSIBLE_BYTES = 1 << 60
_UNTOUCHED = 0x5A5A5A5A5A5A5A5A


@promise("tb_device_properties.allocation_alignment_bytes, memory_allocate 3")
@_KINDS
def test_memory_is_aligned(library: DeviceLibrary, kind: MemoryKind) -> None:
    """Memory of every size starts at a multiple of allocation_alignment_bytes."""
    for device in library.devices:
        alignment = device.properties.allocation_alignment_bytes
        for size in _SIZES:
            with memory(device, size, kind) as address, memory(device, size, kind) as second:
                for place in (address, second):
                    assert place % alignment == 0, (
                        f"{device}: {size} bytes at {place:#x} are not aligned to {alignment} bytes"
                    )


@promise("memory_allocate 3")
def test_live_memory_is_distinct(library: DeviceLibrary) -> None:
    """Live allocations of all devices lie apart."""
    blocks: list[tuple[int, int, Device]] = []
    try:
        for size in (*_SIZES, *reversed(_SIZES)):
            for device in library.devices:
                blocks.append((device.allocate(size), size, device))
        ordered = sorted(blocks, key=lambda block: block[0])
        for (address, size, device), (following, _, other) in itertools.pairwise(ordered):
            assert address + size <= following, (
                f"{size} bytes of {device} at {address:#x} overlap memory of {other} at {following:#x}"
            )
    finally:
        for address, size, device in blocks:
            device.free(address, size)


@promise("memory_allocate 1")
def test_live_memory_keeps_its_contents(library: DeviceLibrary) -> None:
    """What is written to one allocation does not show in another, on any device."""
    blocks: list[tuple[int, bytes, Device]] = []
    try:
        for number, size in enumerate(_SIZES):
            for device in library.devices:
                data = pattern(size, seed=1000 * device.index + number)
                address = device.allocate(size)
                blocks.append((address, data, device))
                device.write(address, data)
        for address, data, device in blocks:
            expect_bytes(
                device.read(address, len(data)), data, f"{device}: {len(data)} bytes after other memory was written"
            )
    finally:
        for address, data, device in blocks:
            device.free(address, len(data))


@promise("TB_MEMORY_SHARED, memory_allocate 1")
@pytest.mark.parametrize("kind", [MemoryKind.HOST, MemoryKind.SHARED], ids=lambda k: k.name)
def test_memory_of_the_host_is_read_and_written_by_the_host(library: DeviceLibrary, kind: MemoryKind) -> None:
    """Memory that the host shares with the device holds what the host stores."""
    for device in library.devices:
        for size in (1, 4097, 1 << 20):
            with memory(device, size, kind) as address:
                data = pattern(size)
                ctypes.memmove(address, data, size)
                expect_bytes(ctypes.string_at(address, size), data, f"{device}: {size} bytes of host memory")


@promise("TB_MEMORY_HOST")
def test_memory_of_the_host_is_copied_to_the_device(library: DeviceLibrary) -> None:
    """TB_MEMORY_HOST is a source and a target of copies."""
    size = 65537
    for device in library.devices:
        with memory(device, size, MemoryKind.HOST) as pinned, memory(device, size) as address:
            data = pattern(size)
            ctypes.memmove(pinned, data, size)
            device.copy(address, pinned, size, CopyKind.HOST_TO_DEVICE)
            device.synchronize()
            expect_bytes(device.read(address, size), data, f"{device}: a copy from TB_MEMORY_HOST")
            ctypes.memset(pinned, 0, size)
            device.copy(pinned, address, size, CopyKind.DEVICE_TO_HOST)
            device.synchronize()
            expect_bytes(ctypes.string_at(pinned, size), data, f"{device}: a copy to TB_MEMORY_HOST")


@promise("memory_free 1")
def test_freed_memory_is_used_again(library: DeviceLibrary) -> None:
    """Memory can be allocated, written and freed over and over, in changing sizes."""
    for device in library.devices:
        for turn in range(50):
            size = _SIZES[turn % len(_SIZES)]
            with memory(device, size) as address:
                data = pattern(size, seed=turn)
                device.write(address, data)
                expect_bytes(device.read(address, size), data, f"{device}: turn {turn} with {size} bytes")


@promise("TB_CAP_STREAM_ALLOC, memory_allocate 4")
@needs.capability("ASYNC")
@needs.slot("stream_host_function")
def test_new_memory_is_usable_at_once(library: DeviceLibrary) -> None:
    """What is written to new memory stays there, though the default stream had work when it was allocated."""
    size = 4097
    data = pattern(size)
    for device in library.devices:
        with device.stream() as stream, host_memory(device, data) as source:
            ordered = stream if device.properties.capabilities & Capability.STREAM_ALLOC else None
            with Hold(device, None):
                address = device.allocate(size, stream=ordered)
                device.copy(address, source, size, CopyKind.HOST_TO_DEVICE, stream)
                device.synchronize(stream)
            expect_bytes(
                device.read(address, size, stream),
                data,
                f"{device}: new memory, written on a created stream while the default stream was held",
            )
            device.free(address, size, stream=ordered)


@promise("TB_CAP_STREAM_ALLOC, memory_free 3")
@needs.capability("STREAM_ALLOC")
@needs.slot("stream_host_function")
def test_freed_memory_serves_the_work_before(library: DeviceLibrary) -> None:
    """With TB_CAP_STREAM_ALLOC work that is on the stream when memory is freed still has it to itself."""
    size = 4097
    kept, others = pattern(size, seed=1), pattern(size, seed=2)
    for device in library.devices:
        blocks: list[int] = []
        with (
            device.stream() as stream,
            device.stream() as other,
            host_memory(device, others) as source,
            host_memory(device, bytes(size)) as seen,
        ):
            address = device.allocate(size, stream=stream)
            device.write(address, kept, stream)
            with Hold(device, stream):
                device.copy(seen, address, size, CopyKind.DEVICE_TO_HOST, stream)
                device.free(address, size, stream=stream)
                device.synchronize()  # the default stream, if that is what it is freed on
                for _ in range(4):  # one of which may be what was freed, if that is given out too early
                    blocks.append(device.allocate(size, stream=other))
                    device.copy(blocks[-1], source, size, CopyKind.HOST_TO_DEVICE, other)
                device.synchronize(other)
            what = f"{device}: a copy from memory that was freed after it on its stream"
            expect_bytes(ctypes.string_at(seen, size), kept, what)
            for block in blocks:
                device.free(block, size, stream=other)


@promise("all calls 5.2, memory_allocate 7")
def test_too_large_a_request_is_out_of_memory(library: DeviceLibrary) -> None:
    """A request that no device can serve is OUT_OF_MEMORY, and writes no address."""
    for device in library.devices:
        out = ctypes.c_void_p(_UNTOUCHED)
        status = library.status(
            "memory_allocate", device.index, MemoryKind.DEVICE, _IMPOSSIBLE_BYTES, None, ctypes.byref(out)
        )
        assert status == Status.OUT_OF_MEMORY, (
            f"{device}: a request for 2^60 bytes returned {status_name(status)} instead of OUT_OF_MEMORY"
        )
        assert out.value == _UNTOUCHED, f"{device}: memory_allocate failed but wrote to out_ptr"


@promise("tb_device_properties.max_allocation_bytes")
def test_more_than_one_allocation_may_have_is_out_of_memory(library: DeviceLibrary) -> None:
    """A request for more than max_allocation_bytes is OUT_OF_MEMORY, writes no address, and others work."""
    for device in library.devices:
        limit = device.properties.max_allocation_bytes
        if limit == 0:
            needs.not_offered("max_allocation_bytes is 0: no limit but that of the memory")
        size = limit + max(device.properties.allocation_granularity_bytes, 1)
        out = ctypes.c_void_p(_UNTOUCHED)
        status = library.status("memory_allocate", device.index, MemoryKind.DEVICE, size, None, ctypes.byref(out))
        if status == Status.OK and out.value is not None:
            device.free(out.value, size)
        assert status == Status.OUT_OF_MEMORY, (
            f"{device}: max_allocation_bytes is {limit}, and a request for {size} bytes returned {status_name(status)} "
            "instead of OUT_OF_MEMORY"
        )
        assert out.value == _UNTOUCHED, f"{device}: memory_allocate failed but wrote to out_ptr"
        _expect_usable(device, min(limit, 1 << 20), "after a request beyond max_allocation_bytes")


@promise("memory_allocate 7")
def test_memory_is_there_after_a_request_failed(library: DeviceLibrary) -> None:
    """An allocation works after another one was OUT_OF_MEMORY."""
    for device in library.devices:
        with pytest.raises(DeviceError):
            device.allocate(_IMPOSSIBLE_BYTES)
        for size in (1, 4096, 1 << 20):
            _expect_usable(device, size, "after a request that was too large")


@promise("memory_allocate 7")
@pytest.mark.thorough
def test_memory_is_there_after_it_ran_out(library: DeviceLibrary) -> None:
    """Memory that ran out can be allocated again once some of it is freed."""
    for device in library.devices:
        piece = max(total_bytes(device) // 16, 1)
        held: list[int] = []
        try:
            full = _allocate_until_it_fails(device, piece, held)
            assert full in (Status.OK, Status.OUT_OF_MEMORY), (
                f"{device}: full memory is reported as {status_name(full)} instead of OUT_OF_MEMORY"
            )
            assert held, f"{device}: not even one sixteenth of its memory ({piece} bytes) could be allocated"
        finally:
            for address in held:
                device.free(address, piece)
        _expect_usable(device, piece, "after memory ran out and was freed")


def _allocate_until_it_fails(device: Device, size_bytes: int, held: list[int]) -> int:
    """What ended the attempt to hold more memory than there is, OK if nothing did."""
    for _ in range(20):
        try:
            held.append(device.allocate(size_bytes))
        except DeviceError as error:
            return error.status
    return Status.OK


def _expect_usable(device: Device, size_bytes: int, when: str) -> None:
    try:
        address = device.allocate(size_bytes)
    except DeviceError as error:
        raise AssertionError(f"{device}: {size_bytes} bytes could not be allocated {when}: {error}") from None
    device.write(address, b"\x01")
    device.free(address, size_bytes)
