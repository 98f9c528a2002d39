"""Copies of bytes between the host and a device, and within a device."""

import ctypes

import pytest

from torch_backend.abi import CopyKind, Device, DeviceLibrary, Status, status_name
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import GUARD_BYTES, expect_bytes, memory, pattern, some_streams

_SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 4095, 4096, 4097, 65537, (1 << 20) + 3)
_OFFSETS = (0, 1, 2, 3, 5, 8, 13, 31, 63)
_sizes = pytest.mark.parametrize("size", _SIZES)
_UNKNOWN_KINDS = (0, 77)


def _surrounded(outside: bytes, inside: bytes, offset: int) -> bytes:
    return outside[:offset] + inside + outside[offset + len(inside) :]


def _expect_copy(actual: bytes, outside: bytes, inside: bytes, offset: int, what: str) -> None:
    """The range has the bytes that were copied, and what lies around it is as it was."""
    end = offset + len(inside)
    expect_bytes(actual[offset:end], inside, what)
    expect_bytes(actual, _surrounded(outside, inside, offset), f"{what}: a byte outside of the target was written")


def _host_to_device(device: Device, size: int, offset: int, stream: int | None) -> None:
    room = offset + size + GUARD_BYTES
    outside, inside = pattern(room, seed=1), pattern(size, seed=2)
    with memory(device, room) as address:
        device.write(address, outside, stream)
        device.write(address + offset, inside, stream)
        what = f"{device}: {size} bytes copied from the host to offset {offset}"
        _expect_copy(device.read(address, room, stream), outside, inside, offset, what)


@promise("memory_copy 1 3")
@_sizes
def test_copies_to_the_device_arrive_whole(library: DeviceLibrary, size: int) -> None:
    """A copy to the device of any size, at any offset and on any stream, writes its target and nothing else."""
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                for offset in (0, 1, GUARD_BYTES + 1):
                    _host_to_device(device, size, offset, stream)


@promise("all calls 10.3, memory_copy 1")
@_sizes
def test_copies_to_the_host_arrive_whole(library: DeviceLibrary, size: int) -> None:
    """A copy to the host of any size, from any offset and to any address, writes its target and nothing else."""
    for device in library.devices:
        data = pattern(size + GUARD_BYTES)
        with memory(device, len(data)) as address:
            device.write(address, data)
            for offset in (0, 1, 7):
                outside = pattern(size + 2 * GUARD_BYTES, seed=3)
                target = ctypes.create_string_buffer(outside, len(outside))
                place = ctypes.addressof(target) + offset
                device.copy(place, address + offset, size, CopyKind.DEVICE_TO_HOST)
                device.synchronize()
                what = f"{device}: {size} bytes copied to the host from offset {offset}"
                _expect_copy(target.raw, outside, data[offset : offset + size], offset, what)


@promise("TB_COPY_DEVICE_TO_DEVICE, memory_copy 1")
@_sizes
def test_copies_within_the_device_arrive_whole(library: DeviceLibrary, size: int) -> None:
    """A copy within a device of any size, between any offsets, writes its target and nothing else."""
    for device in library.devices:
        data, outside = pattern(size + GUARD_BYTES, seed=4), pattern(size + 2 * GUARD_BYTES, seed=5)
        with memory(device, len(data)) as source, memory(device, len(outside)) as target:
            device.write(source, data)
            for to, start in ((0, 0), (1, 0), (0, 1), (5, 3)):
                device.write(target, outside)
                device.copy(target + to, source + start, size, CopyKind.DEVICE_TO_DEVICE)
                device.synchronize()
                what = f"{device}: {size} bytes copied within the device from offset {start} to offset {to}"
                actual = device.read(target, len(outside))
                _expect_copy(actual, outside, data[start : start + size], to, what)


@promise("memory_copy 3")
@pytest.mark.parametrize("offset", _OFFSETS)
def test_copies_start_at_any_offset(library: DeviceLibrary, offset: int) -> None:
    """A copy starts at exactly the byte that it was told, on both sides."""
    size = 256
    for device in library.devices:
        data = pattern(size)
        with memory(device, size) as address:
            device.write(address, data)
            part = device.read(address + offset, 17)
            expect_bytes(part, data[offset : offset + 17], f"{device}: 17 bytes read from offset {offset}")
            device.write(address + offset, b"\xff")
            expect_bytes(
                device.read(address, size),
                _surrounded(data, b"\xff", offset),
                f"{device}: after one byte was written at offset {offset}",
            )


@promise("memory_copy 3")
def test_copies_within_one_allocation(library: DeviceLibrary) -> None:
    """A copy between two ranges of one allocation that do not overlap moves the one to the other."""
    half = 1001
    for device in library.devices:
        data = pattern(2 * half)
        with memory(device, 2 * half) as address:
            device.write(address, data)
            device.copy(address + half, address, half, CopyKind.DEVICE_TO_DEVICE)
            device.synchronize()
            expect_bytes(
                device.read(address, 2 * half), data[:half] * 2, f"{device}: {half} bytes copied to the other half"
            )


@promise("all calls 6.1")
def test_the_source_of_a_copy_is_as_it_was(library: DeviceLibrary) -> None:
    """A copy does not write its source."""
    size = 4097
    for device in library.devices:
        data = pattern(size)
        source = ctypes.create_string_buffer(data, size)
        with memory(device, size) as first, memory(device, size) as second:
            device.copy(first, ctypes.addressof(source), size, CopyKind.HOST_TO_DEVICE)
            device.synchronize()
            expect_bytes(source.raw, data, f"{device}: the host's source of a copy to the device")
            device.copy(second, first, size, CopyKind.DEVICE_TO_DEVICE)
            device.synchronize()
            expect_bytes(device.read(first, size), data, f"{device}: the source of a copy within the device")


@promise("memory_copy 3")
@pytest.mark.thorough
def test_large_copies_arrive_whole(library: DeviceLibrary) -> None:
    """Copies of many megabytes arrive whole, in both directions and within the device."""
    size = (64 << 20) + 5
    data = pattern(1 << 20) * 64 + b"tail!"
    for device in library.devices:
        with memory(device, size) as first, memory(device, size) as second:
            device.write(first, data)
            device.copy(second, first, size, CopyKind.DEVICE_TO_DEVICE)
            device.synchronize()
            expect_bytes(device.read(second, size), data, f"{device}: {size} bytes did not arrive whole")


@promise("all calls 5.2")
@pytest.mark.parametrize("kind", _UNKNOWN_KINDS)
def test_a_copy_of_an_unknown_kind_moves_nothing(library: DeviceLibrary, kind: int) -> None:
    """A copy of a kind that the contract does not have is UNSUPPORTED, and leaves its target as it was."""
    size = 256
    for device in library.devices:
        data, before = pattern(size, seed=1), pattern(size, seed=2)
        source = ctypes.create_string_buffer(data, size)
        with memory(device, size) as address:
            device.write(address, before)
            status = library.status(
                "memory_copy", device.index, address, -1, ctypes.addressof(source), size, kind, None
            )
            device.synchronize()
            assert status == Status.UNSUPPORTED, (
                f"{device}: memory_copy of kind {kind} returned {status_name(status)} instead of UNSUPPORTED"
            )
            expect_bytes(
                device.read(address, size),
                before,
                f"{device}: memory_copy of kind {kind} failed, but had a side effect",
            )
