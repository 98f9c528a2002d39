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
from torch_backend.testing import needs
from torch_backend.testing.suite.abi._support import memory

pytestmark = needs.table("prof.1")

_SIZE = 12345
_CORRELATION = 4711
_MOST_SKEW_NS = 50_000_000


@dataclass(frozen=True)
class _Record:
    kind: int
    device: int
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
                record.correlation,
                record.start_ns,
                record.end_ns,
                record.name,
                record.size_bytes,
            )
        )

    _check(library, "trace_collect", take, None)
    return records


def _trace_of_a_copy(device: Device, kinds: TraceKind) -> list[_Record]:
    library = device.library
    with memory(device, _SIZE) as address:
        _collect(library)  # what is left from before
        _check(library, "trace_start", kinds)
        _check(library, "correlation_push", _CORRELATION)
        device.write(address, bytes(_SIZE))
        _check(library, "correlation_pop")
        device.synchronize()
        _check(library, "trace_stop")
    return _collect(library)


def test_required_slots_are_set(library: DeviceLibrary) -> None:
    """Every slot but those of ranges is set, and those two are set together."""
    table = library.tables["prof.1"]
    unset = table.lacks
    assert not unset, f"the table prof.1 is offered, but these slots are unset: {', '.join(unset)}"
    assert ("range_push" in table) == ("range_pop" in table), "only one of range_push and range_pop is set"


def test_a_copy_is_traced(library: DeviceLibrary) -> None:
    """A copy leaves a record with its device, size, times and correlation."""
    for device in library.devices:
        copies = [record for record in _trace_of_a_copy(device, TraceKind.COPY) if record.kind == TraceKind.COPY]
        assert copies, f"{device}: a copy left no record"
        (copy,) = copies
        assert copy.device == device.index, f"{device}: the record of a copy names device {copy.device}"
        assert copy.size_bytes == _SIZE, f"{device}: the record of {_SIZE} bytes says {copy.size_bytes}"
        assert copy.start_ns <= copy.end_ns, f"{device}: a copy ended {copy.start_ns - copy.end_ns} ns before it began"
        assert copy.correlation == _CORRELATION, (
            f"{device}: a copy under correlation {_CORRELATION} has correlation {copy.correlation}"
        )
        assert copy.name is not None, f"{device}: the record of a copy has no name"


def test_only_what_was_asked_for_is_traced(library: DeviceLibrary) -> None:
    """Kinds that were not asked for leave no records."""
    for device in library.devices:
        records = _trace_of_a_copy(device, TraceKind.FILL)
        other = sorted({record.kind for record in records} - {TraceKind.FILL})
        assert not other, f"{device}: only fills were to be traced, but there are records of kinds {other}"


def test_records_are_handed_out_once(library: DeviceLibrary) -> None:
    """What trace_collect has handed out is forgotten, and nothing is recorded after trace_stop."""
    for device in library.devices:
        _trace_of_a_copy(device, TraceKind.COPY)
        with memory(device, _SIZE) as address:
            device.write(address, bytes(_SIZE))
        again = _collect(library)
        assert not again, f"{device}: {len(again)} records were handed out twice, or made after trace_stop"


def test_clocks_can_be_compared(library: DeviceLibrary) -> None:
    """clock_pair reads the host's monotonic clock, and the device's clock runs as fast."""
    for device in library.devices:
        pairs = []
        for _ in range(2):
            device_ns, host_ns = ctypes.c_int64(), ctypes.c_int64()
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            library.bind(device.index)
            _check(library, "clock_pair", device.index, ctypes.byref(device_ns), ctypes.byref(host_ns))
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            assert before <= host_ns.value <= after, (
                f"{device}: clock_pair says {host_ns.value} for the host, whose CLOCK_MONOTONIC was {before} to {after}"
            )
            pairs.append((device_ns.value, host_ns.value))
            time.sleep(0.02)
        on_device, on_host = (pairs[1][i] - pairs[0][i] for i in (0, 1))
        assert abs(on_device - on_host) < max(_MOST_SKEW_NS, on_host // 2), (
            f"{device}: {on_device} ns passed on the device's clock and {on_host} ns on the host's"
        )


def test_ranges_nest(library: DeviceLibrary) -> None:
    """Ranges are pushed and popped."""
    if "range_push" not in library.tables["prof.1"]:
        needs.not_offered("the table prof.1 leaves the slot range_push unset")
    for name in (b"outer", b"inner"):
        _check(library, "range_push", name)
    for _ in range(2):
        _check(library, "range_pop")
