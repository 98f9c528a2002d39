"""Fills with a repeated pattern."""

import ctypes

import pytest

from torch_backend.abi import Device, DeviceLibrary, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import GUARD_BYTES, expect_bytes, memory, pattern, some_streams

pytestmark = needs.slot("memory_fill")

_WIDTHS = (1, 2, 4, 8, 16)
_COUNTS = (1, 2, 3, 5, 63, 64, 65, 257, 4099)
_widths = pytest.mark.parametrize("width", _WIDTHS)


def _fill(device: Device, address: int, value: bytes, size: int, stream: int | None) -> None:
    before = device.read(address, size, stream)
    status = device.library.status("memory_fill", device.index, address, value, len(value), size, stream)
    if status == Status.UNSUPPORTED:
        what = f"{device}: memory_fill with a pattern of {len(value)} bytes answered UNSUPPORTED, but"
        expect_bytes(device.read(address, size, stream), before, what)
        needs.not_offered(f"memory_fill with a pattern of {len(value)} bytes answered UNSUPPORTED")
    assert status == Status.OK, f"{device}: memory_fill returned {status_name(status)}: {device.library.error_text()}"


@promise("all calls 10.3, memory_fill 1")
@_widths
def test_fills_repeat_the_pattern(library: DeviceLibrary, width: int) -> None:
    """A fill repeats its pattern over the range, and writes nothing else."""
    value = pattern(width - 1, seed=7) + b"\x9c"  # as a signed number it is negative
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                for count in _COUNTS:
                    size, offset = width * count, width * 3
                    outside = pattern(offset + size + GUARD_BYTES, seed=8)
                    with memory(device, len(outside)) as address:
                        device.write(address, outside, stream)
                        _fill(device, address + offset, value, size, stream)
                        expect_bytes(
                            device.read(address, len(outside), stream),
                            outside[:offset] + value * count + outside[offset + size :],
                            f"{device}: {size} bytes filled with {width} bytes at offset {offset}",
                        )


@promise("TB_STATUS_LIST 3.2, memory_fill 1")
@_widths
def test_fills_with_equal_bytes(library: DeviceLibrary, width: int) -> None:
    """A fill whose pattern is one byte repeated, as in zeros, fills all of the range."""
    size = 16 * 1000
    for device in library.devices:
        with memory(device, size) as address:
            for byte in (b"\0", b"\xff"):
                _fill(device, address, byte * width, size, None)
                expect_bytes(device.read(address, size), byte * size, f"{device}: filled with {byte!r}")


@promise("memory_fill 2")
def test_the_pattern_is_read_before_the_call_returns(library: DeviceLibrary) -> None:
    """The pattern may be overwritten as soon as the call has returned."""
    size = 1 << 16
    for device in library.devices:
        with memory(device, size) as address:
            value = ctypes.create_string_buffer(b"\x11\x22\x33\x44", 4)
            status = library.status("memory_fill", device.index, address, ctypes.addressof(value), 4, size, None)
            ctypes.memset(value, 0xEE, 4)
            if status == Status.UNSUPPORTED:
                needs.not_offered("memory_fill with a pattern of 4 bytes answered UNSUPPORTED")
            assert status == Status.OK, f"{device}: memory_fill returned {status_name(status)}: {library.error_text()}"
            device.synchronize()
            expect_bytes(
                device.read(address, size),
                b"\x11\x22\x33\x44" * (size // 4),
                f"{device}: a fill whose pattern was overwritten after the call",
            )
