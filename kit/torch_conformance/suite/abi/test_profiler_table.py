"""The table prof.1: what the device did, and when."""

import ctypes
import time
from dataclasses import dataclass
from typing import Any

from torch_backend.abi import (
    Device,
    DeviceError,
    DeviceLibrary,
    Status,
    TraceKind,
    tb_trace_callback,
    tb_trace_record,
)
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import memory, some_streams
from torch_conformance.threads import in_threads

pytestmark = needs.table("prof.1")

_SIZE = 12345
_CORRELATION = 4711
_MOST_SKEW_NS = 50_000_000


@dataclass(frozen=True)
class _Record:
    kind: int
    device: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int
    name: bytes | None
    size_bytes: int


def _check(library: DeviceLibrary, slot: str, *arguments: object) -> None:
    status = library.noted(getattr(library.tables["prof.1"], slot)(*arguments))
    if status == Status.UNSUPPORTED:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    if status != Status.OK:
        raise DeviceError(slot, status, library.error_text())


def _collect(library: DeviceLibrary) -> list[_Record]:
    records: list[_Record] = []

    @tb_trace_callback  # type: ignore[untyped-decorator]
    def take(_: int | None, pointer: Any) -> None:
        record: tb_trace_record = pointer.contents
        records.append(
            _Record(
                record.kind,
                record.device,
                record.stream,
                record.correlation,
                record.start_ns,
                record.end_ns,
                record.name,
                record.size_bytes,
            )
        )

    _check(library, "trace_collect", take, None)
    return records


def _clocks(device: Device) -> tuple[int, int]:
    """What clock_pair says: the device's time and the host's."""
    device_ns, host_ns = ctypes.c_int64(), ctypes.c_int64()
    device.library.bind(device.index)
    _check(device.library, "clock_pair", device.index, ctypes.byref(device_ns), ctypes.byref(host_ns))
    return device_ns.value, host_ns.value


def _trace_of_a_copy(device: Device, kinds: TraceKind, stream: int | None = None) -> list[_Record]:
    library = device.library

    def name_another() -> None:
        _check(library, "correlation_push", _CORRELATION + 1)

    with memory(device, _SIZE) as address:
        _collect(library)  # what is left from before
        _check(library, "trace_start", kinds)
        _check(library, "correlation_push", _CORRELATION)
        in_threads([name_another])  # every thread has a stack of its own
        device.write(address, bytes(_SIZE), stream)
        _check(library, "correlation_pop")
        device.synchronize(stream)
        _check(library, "trace_stop")
    return _collect(library)


@promise("range_push")
def test_required_slots_are_set(library: DeviceLibrary) -> None:
    """Every slot but those of ranges is set, and those two are set together."""
    table = library.tables["prof.1"]
    unset = table.lacks
    assert not unset, f"the table prof.1 is offered, but these slots are unset: {', '.join(unset)}"
    assert ("range_push" in table) == ("range_pop" in table), "only one of range_push and range_pop is set"


@promise("tb_trace_record.stream, tb_trace_record.correlation, tb_trace_record.start_ns, correlation_push")
def test_a_copy_is_traced(library: DeviceLibrary) -> None:
    """A copy leaves a record with its device, stream, size, times and correlation."""
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                _expect_record(device, stream)


def _expect_record(device: Device, stream: int | None) -> None:
    before, _ = _clocks(device)
    copies = [record for record in _trace_of_a_copy(device, TraceKind.COPY, stream) if record.kind == TraceKind.COPY]
    assert len(copies) == 1, f"{device}: one copy left {len(copies)} records"
    (copy,) = copies
    assert copy.stream == (stream or 0), f"{device}: the record of a copy on {stream or 0:#x} names {copy.stream:#x}"
    assert copy.device == device.index, f"{device}: the record of a copy names device {copy.device}"
    assert copy.size_bytes == _SIZE, f"{device}: the record of {_SIZE} bytes says {copy.size_bytes}"
    after, _ = _clocks(device)
    assert before - _MOST_SKEW_NS <= copy.start_ns <= after + _MOST_SKEW_NS, (
        f"{device}: a copy began at {copy.start_ns}, and clock_pair said {before} before it and {after} after it"
    )
    assert copy.start_ns <= copy.end_ns, f"{device}: a copy ended {copy.start_ns - copy.end_ns} ns before it began"
    assert copy.correlation == _CORRELATION, (
        f"{device}: a copy under correlation {_CORRELATION} has correlation {copy.correlation}"
    )
    assert copy.name is not None, f"{device}: the record of a copy has no name"


@promise("tb_trace_record.kind, trace_start")
def test_only_what_was_asked_for_is_traced(library: DeviceLibrary) -> None:
    """Kinds that were not asked for leave no records."""
    for device in library.devices:
        records = _trace_of_a_copy(device, TraceKind.FILL)
        other = sorted({record.kind for record in records} - {TraceKind.FILL})
        assert not other, f"{device}: only fills were to be traced, but there are records of kinds {other}"


@promise("trace_collect")
def test_records_are_handed_out_once(library: DeviceLibrary) -> None:
    """What trace_collect has handed out is forgotten, and nothing is recorded after trace_stop."""
    for device in library.devices:
        _trace_of_a_copy(device, TraceKind.COPY)
        with memory(device, _SIZE) as address:
            device.write(address, bytes(_SIZE))
        again = _collect(library)
        assert not again, f"{device}: {len(again)} records were handed out twice, or made after trace_stop"


@promise("clock_pair")
def test_clocks_can_be_compared(library: DeviceLibrary) -> None:
    """clock_pair reads the host's monotonic clock, and the device's clock runs as fast."""
    for device in library.devices:
        pairs = []
        for _ in range(2):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            pairs.append(_clocks(device))
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            host_ns = pairs[-1][1]
            assert before <= host_ns <= after, (
                f"{device}: clock_pair says {host_ns} for the host, whose CLOCK_MONOTONIC was {before} to {after}"
            )
            time.sleep(0.02)
        on_device, on_host = (pairs[1][i] - pairs[0][i] for i in (0, 1))
        assert abs(on_device - on_host) < max(_MOST_SKEW_NS, on_host // 2), (
            f"{device}: {on_device} ns passed on the device's clock and {on_host} ns on the host's"
        )


@promise("range_push")
def test_ranges_nest(library: DeviceLibrary) -> None:
    """Ranges are pushed and popped."""
    if "range_push" not in library.tables["prof.1"]:
        needs.not_offered("the table prof.1 leaves the slot range_push unset")
    for name in (b"outer", b"inner"):
        _check(library, "range_push", name)
    for _ in range(2):
        _check(library, "range_pop")
