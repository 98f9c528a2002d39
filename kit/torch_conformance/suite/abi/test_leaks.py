"""Nothing gets lost over many operations."""

import ctypes
import gc
import mmap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_backend.abi import Device, DeviceLibrary
from torch_conformance import facts, needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import ROUNDS, used_bytes

_BLOCK_BYTES = 64 << 10
_MOST_BLOCKS_BYTES = 24 << 20
_MOST_SMALL_BYTES = 4 << 20
_WARM_UP = 100
_FEWEST_TURNS = 450  # of which blocks make more than what may be missing
_MOST_SECONDS = 10.0


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * mmap.PAGESIZE


def _used_bytes(device: Device) -> int:
    return used_bytes(device) if "memory_info" in device.library.core else 0


def _expect_no_growth(device: Device, turns: int, most_bytes: int, operation: Callable[[], None]) -> None:
    """Repeat something; neither the process nor what the device counts as used may grow with it.

    A slow device has fewer turns.
    """
    for _ in range(_WARM_UP):
        operation()
    for _ in range(ROUNDS):
        resident, used = _resident_bytes(), _used_bytes(device)
        end = time.monotonic() + _MOST_SECONDS
        done = 0
        while done < turns and (done < _FEWEST_TURNS or time.monotonic() < end):
            operation()
            done += 1
        grown, more = _resident_bytes() - resident, _used_bytes(device) - used
        if more < most_bytes or grown >= most_bytes:
            break
    facts.record(turns=done, grown_bytes=grown)
    assert grown < most_bytes, f"{device}: the process grew by {grown} bytes in {done} turns: memory is lost"
    assert more < most_bytes, (
        f"{device}: memory_info says that {more} more bytes are in use after {done} turns: memory is lost"
    )


@promise("memory_free 1")
def test_memory_is_not_lost(library: DeviceLibrary, quick: bool) -> None:
    """Memory that is allocated, used and freed over and over comes back."""
    for device in library.devices:

        def turn(device: Device = device) -> None:
            with device.allocation(_BLOCK_BYTES) as address:
                for offset in range(0, _BLOCK_BYTES, _BLOCK_BYTES // 4):
                    device.write(address + offset, b"\x01" * (_BLOCK_BYTES // 4))

        turns = _FEWEST_TURNS if quick else 20_000 // library.device_count
        _expect_no_growth(device, turns, _MOST_BLOCKS_BYTES, turn)


@promise("event_destroy")
@needs.capability("ASYNC")
@pytest.mark.thorough
def test_events_are_not_lost(library: DeviceLibrary) -> None:
    """A hundred thousand events that are created, recorded and destroyed leave nothing behind."""
    device = library.devices[0]

    def turn() -> None:
        for _ in range(20):
            with device.event() as event:
                device.record(event)
        device.synchronize()

    _expect_no_growth(device, 5000, _MOST_SMALL_BYTES, turn)


@promise("stream_destroy 1")
@needs.capability("ASYNC")
@pytest.mark.thorough
def test_streams_are_not_lost(library: DeviceLibrary) -> None:
    """Streams that are created, used and destroyed over and over leave nothing behind."""
    device = library.devices[-1]

    def turn() -> None:
        with device.stream() as stream, device.event() as event:
            device.record(event, stream)
            device.synchronize(stream)

    _expect_no_growth(device, 3000, _MOST_SMALL_BYTES, turn)


@promise("all calls 5.2")
@pytest.mark.thorough
def test_queries_and_failures_leave_nothing(library: DeviceLibrary) -> None:
    """Calls that only ask, and calls that fail, leave nothing behind."""
    device = library.devices[0]
    out = ctypes.c_void_p()

    def turn() -> None:
        library.properties(device.index)
        library.status("memory_allocate", device.index, 77, 4096, None, ctypes.byref(out))

    _expect_no_growth(device, 50_000, _MOST_SMALL_BYTES, turn)
