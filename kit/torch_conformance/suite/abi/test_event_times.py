"""The time between events."""

import ctypes
import time

from torch_backend.abi import Device, DeviceLibrary, EventFlag, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import Hold, host_function, memory, pattern

pytestmark = needs.capability("EVENT_TIMING")

_PAUSE_SECONDS = 0.03
_NS = 1_000_000_000
_UNTOUCHED = 0x5A5A5A5A5A5A5A5A


def _elapsed_status(device: Device, start: int, end: int) -> tuple[int, int]:
    elapsed = ctypes.c_int64(_UNTOUCHED)
    status = device.library.status("event_elapsed", device.index, start, end, ctypes.byref(elapsed))
    return status, elapsed.value


@promise("event_elapsed 1")
def test_time_does_not_run_backwards(library: DeviceLibrary) -> None:
    """The time from an earlier record to a later one is not negative, and it adds up."""
    for device in library.devices:
        with (
            device.stream() as stream,
            device.event(EventFlag.TIMING) as first,
            device.event(EventFlag.TIMING) as second,
            device.event(EventFlag.TIMING) as third,
            memory(device, 1 << 20) as address,
        ):
            for event in (first, second, third):
                device.write(address, pattern(1 << 20), stream)
                device.record(event, stream)
            device.synchronize(stream)
            one, two = device.elapsed_ns(first, second), device.elapsed_ns(second, third)
            both, none = device.elapsed_ns(first, third), device.elapsed_ns(first, first)
            assert one >= 0, f"{device}: {one} ns from a record to a later one"
            assert two >= 0, f"{device}: {two} ns from a record to a later one"
            assert none == 0, f"{device}: {none} ns from a record to itself"
            assert abs(both - one - two) <= max(both // 100, 2000), f"{device}: {one} + {two} ns are {both} ns in all"


@promise("event_elapsed 1")
@needs.slot("stream_host_function")
def test_times_are_in_nanoseconds(library: DeviceLibrary) -> None:
    """Work that takes 30 ms on the host's clock takes about as long between two events."""
    for device in library.devices:
        with (
            device.stream() as stream,
            device.event(EventFlag.TIMING) as start,
            device.event(EventFlag.TIMING) as end,
        ):
            begin = time.monotonic()
            device.record(start, stream)
            host_function(device, lambda: time.sleep(_PAUSE_SECONDS), stream)
            device.record(end, stream)
            device.synchronize(stream)
            most = (time.monotonic() - begin) * _NS
            elapsed = device.elapsed_ns(start, end)
            assert 0.8 * _PAUSE_SECONDS * _NS <= elapsed <= 1.2 * most, (
                f"{device}: event_elapsed says {elapsed} ns for work of {_PAUSE_SECONDS * _NS:.0f} to {most:.0f} ns"
            )


@promise("event_elapsed 2")
@needs.slot("stream_host_function")
def test_the_time_of_a_pending_event_is_not_ready(library: DeviceLibrary) -> None:
    """event_elapsed is NOT_READY and writes nothing while an event is pending."""
    for device in library.devices:
        with (
            device.stream() as stream,
            device.event(EventFlag.TIMING) as start,
            device.event(EventFlag.TIMING) as end,
        ):
            device.record(start, stream)
            with Hold(device, stream, patient=True) as hold:
                device.record(end, stream)
                status, elapsed = _elapsed_status(device, start, end)
                hold.expect_held("event_record or event_elapsed")
                assert status == Status.NOT_READY, (
                    f"{device}: event_elapsed of a pending event returned {status_name(status)} instead of NOT_READY"
                )
                assert elapsed == _UNTOUCHED, f"{device}: event_elapsed failed but wrote to out_elapsed_ns"


@promise("event_elapsed 2")
def test_the_time_of_an_event_never_recorded_is_refused(library: DeviceLibrary) -> None:
    """event_elapsed is INVALID_ARGUMENT and writes nothing if one of the events was never recorded."""
    for device in library.devices:
        with (
            device.stream() as stream,
            device.event(EventFlag.TIMING) as recorded,
            device.event(EventFlag.TIMING) as never,
        ):
            device.record(recorded, stream)
            device.synchronize(stream)
            for start, end in ((recorded, never), (never, recorded), (never, never)):
                status, elapsed = _elapsed_status(device, start, end)
                assert status == Status.INVALID_ARGUMENT, (
                    f"{device}: event_elapsed of an event never recorded returned {status_name(status)}, "
                    "not INVALID_ARGUMENT"
                )
                assert elapsed == _UNTOUCHED, f"{device}: event_elapsed failed but wrote to out_elapsed_ns"


@promise("event_elapsed 2")
@needs.devices(2)
def test_the_time_between_events_of_two_devices_is_refused(library: DeviceLibrary) -> None:
    """event_elapsed is INVALID_ARGUMENT and writes nothing if one of the events belongs to another device."""
    first, second = library.devices[:2]
    with first.event(EventFlag.TIMING) as own, second.event(EventFlag.TIMING) as foreign:
        for device, event in ((first, own), (second, foreign)):
            device.record(event)
            device.synchronize()
        for start, end in ((own, foreign), (foreign, own)):
            status, elapsed = _elapsed_status(first, start, end)
            assert status == Status.INVALID_ARGUMENT, (
                f"{first}: event_elapsed of an event of {second} returned {status_name(status)}, not INVALID_ARGUMENT"
            )
            assert elapsed == _UNTOUCHED, f"{first}: event_elapsed failed but wrote to out_elapsed_ns"
