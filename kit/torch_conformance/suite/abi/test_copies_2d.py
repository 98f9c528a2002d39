"""Copies of rows with a pitch."""

import ctypes
from collections.abc import Callable
from functools import partial

import pytest

from torch_backend.abi import CopyKind, Device, DeviceLibrary, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes, memory, pattern

pytestmark = needs.slot("memory_copy_2d")

_SHAPES = [(1, 1, 1, 1), (3, 7, 5, 4), (64, 64, 64, 8), (17, 33, 20, 9), (100, 128, 101, 31)]
"""Width, pitch of the target, pitch of the source, rows."""

_shapes = pytest.mark.parametrize("shape", _SHAPES, ids=lambda shape: "x".join(map(str, shape)))


def _expected(target: bytes, source: bytes, shape: tuple[int, int, int, int]) -> bytes:
    width, dst_pitch, src_pitch, height = shape
    result = bytearray(target)
    for row in range(height):
        result[row * dst_pitch : row * dst_pitch + width] = source[row * src_pitch : row * src_pitch + width]
    return bytes(result)


def _copy(
    device: Device, dst: int, src: int, shape: tuple[int, int, int, int], kind: CopyKind, held: Callable[[], bytes]
) -> None:
    """Copy rows; ``held`` tells what the target holds, which is as it was if the copy is refused."""
    before = held()
    width, dst_pitch, src_pitch, height = shape
    status = device.library.status(
        "memory_copy_2d", device.index, dst, dst_pitch, src, src_pitch, width, height, kind, None
    )
    if status == Status.UNSUPPORTED:
        device.synchronize()
        expect_bytes(held(), before, f"{device}: memory_copy_2d of kind {kind.name} answered UNSUPPORTED, but")
        needs.not_offered(f"memory_copy_2d of kind {kind.name} answered UNSUPPORTED")
    assert status == Status.OK, f"{device}: memory_copy_2d of kind {kind.name} returned {status_name(status)}"
    device.synchronize()


@promise("TB_STATUS_LIST 3.2, memory_copy_2d 1")
@_shapes
def test_rows_are_copied_to_the_device(library: DeviceLibrary, shape: tuple[int, int, int, int]) -> None:
    """Rows arrive on the device with the target's pitch, and what lies between them is as it was."""
    _, dst_pitch, src_pitch, height = shape
    before, rows = pattern(dst_pitch * height, seed=1), pattern(src_pitch * height, seed=2)
    source = ctypes.create_string_buffer(rows, len(rows))
    for device in library.devices:
        with memory(device, len(before)) as address:
            device.write(address, before)
            held = partial(device.read, address, len(before))
            _copy(device, address, ctypes.addressof(source), shape, CopyKind.HOST_TO_DEVICE, held)
            expect_bytes(held(), _expected(before, rows, shape), f"{device}: rows {shape}")


@promise("memory_copy_2d 1")
@_shapes
def test_rows_are_copied_to_the_host(library: DeviceLibrary, shape: tuple[int, int, int, int]) -> None:
    """Rows arrive on the host with the target's pitch, and what lies between them is as it was."""
    _, dst_pitch, src_pitch, height = shape
    before, rows = pattern(dst_pitch * height, seed=1), pattern(src_pitch * height, seed=2)
    for device in library.devices:
        target = ctypes.create_string_buffer(before, len(before))
        with memory(device, len(rows)) as address:
            device.write(address, rows)
            held = partial(ctypes.string_at, ctypes.addressof(target), len(before))
            _copy(device, ctypes.addressof(target), address, shape, CopyKind.DEVICE_TO_HOST, held)
            expect_bytes(target.raw, _expected(before, rows, shape), f"{device}: rows {shape}")


@promise("memory_copy_2d 1")
@_shapes
def test_rows_are_copied_within_the_device(library: DeviceLibrary, shape: tuple[int, int, int, int]) -> None:
    """Rows arrive within the device with the target's pitch, and what lies between them is as it was."""
    _, dst_pitch, src_pitch, height = shape
    before, rows = pattern(dst_pitch * height, seed=1), pattern(src_pitch * height, seed=2)
    for device in library.devices:
        with memory(device, len(before)) as dst, memory(device, len(rows)) as src:
            device.write(dst, before)
            device.write(src, rows)
            held = partial(device.read, dst, len(before))
            _copy(device, dst, src, shape, CopyKind.DEVICE_TO_DEVICE, held)
            expect_bytes(held(), _expected(before, rows, shape), f"{device}: rows {shape}")


_PLACES = {"apart": (7, 7 + 40 * 9, 40, 33), "side-by-side": (0, 20, 40, 40), "rows-in-turn": (0, 40, 80, 80)}
"""Where source and target begin in one allocation, and their pitches."""


@promise("TB_STATUS_LIST 3.2, memory_copy_2d 3")
@pytest.mark.parametrize("places", _PLACES)
def test_rows_are_copied_within_one_allocation(library: DeviceLibrary, places: str) -> None:
    """Source and target may lie in one allocation, also in turn; a device that answers UNSUPPORTED has done nothing."""
    src_at, dst_at, src_pitch, dst_pitch = _PLACES[places]
    width, height = 20, 9
    before = pattern(1000)
    expected = bytearray(before)
    for row in range(height):
        start = src_at + row * src_pitch
        expected[dst_at + row * dst_pitch : dst_at + row * dst_pitch + width] = before[start : start + width]
    for device in library.devices:
        with memory(device, len(before)) as address:
            device.write(address, before)
            status = library.status(
                "memory_copy_2d",
                device.index,
                address + dst_at,
                dst_pitch,
                address + src_at,
                src_pitch,
                width,
                height,
                CopyKind.DEVICE_TO_DEVICE,
                None,
            )
            device.synchronize()
            after = device.read(address, len(before))
            if status == Status.UNSUPPORTED:
                expect_bytes(after, before, f"{device}: memory_copy_2d within one allocation answered UNSUPPORTED, but")
                needs.not_offered("memory_copy_2d within one allocation answered UNSUPPORTED")
            assert status == Status.OK, f"{device}: memory_copy_2d within one allocation returned {status_name(status)}"
            expect_bytes(after, bytes(expected), f"{device}: rows that were copied within one allocation, {places}")
