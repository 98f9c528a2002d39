"""Work of every kind takes its place on its stream: after what was enqueued before it, before what follows."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest

from torch_backend.abi import CopyKind, Device, DeviceLibrary
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._modules import Launch, Pointer, modules_of
from torch_conformance.suite.abi._support import (
    Hold,
    call_optional,
    expect_bytes,
    graph_of,
    host_memory,
    memory,
    pattern,
    replay,
    some_streams,
)

pytestmark = [needs.capability("ASYNC"), needs.slot("stream_host_function")]

_SIZE = 1024
_ROW, _PITCH = 128, 160
_EARLY_SECONDS = 0.02
_MADE, _EARLIER, _LATER, _BEFORE = (pattern(_SIZE, seed=seed) for seed in range(1, 5))
_FILL = b"\x11\x22\x33\x44"


@dataclass(frozen=True)
class _Place:
    """Where work is enqueued, and memory for it."""

    device: Device
    stream: int | None
    other: int | None
    """A stream on which nothing is."""
    target: int
    source: int
    """Memory of the device that holds _MADE."""
    rows: int
    """Memory of the device that holds _MADE in rows with a pitch."""
    host_rows: int
    """Memory of the host that holds the same."""

    def call(self, slot: str, *arguments: object) -> None:
        """Enqueue on the stream, which is the slot's last argument; not offered if it answers UNSUPPORTED."""
        call_optional(self.device, slot, self.device.index, *arguments, self.stream)


def _fill(place: _Place) -> None:
    place.call("memory_fill", place.target, _FILL, len(_FILL), _SIZE)


def _copy_within(place: _Place) -> None:
    place.device.copy(place.target, place.source, _SIZE, CopyKind.DEVICE_TO_DEVICE, place.stream)


def _copy_rows(place: _Place, source: int, kind: CopyKind) -> None:
    place.call("memory_copy_2d", place.target, _ROW, source, _PITCH, _ROW, _SIZE // _ROW, kind)


def _copy_rows_within(place: _Place) -> None:
    _copy_rows(place, place.rows, CopyKind.DEVICE_TO_DEVICE)


def _copy_rows_in(place: _Place) -> None:
    _copy_rows(place, place.host_rows, CopyKind.HOST_TO_DEVICE)


def _launch(place: _Place) -> None:
    for modules in modules_of(place.device.library):
        if modules.device is place.device:
            params = [Pointer(place.target), Pointer(place.source), ctypes.c_int32(0)]
            modules.launch("shift", Launch(params, grid=(_SIZE, 1, 1)), place.stream)


def _in_rows(data: bytes) -> bytes:
    return b"".join(data[i : i + _ROW].ljust(_PITCH, b"?") for i in range(0, len(data), _ROW))


_ROWS = _in_rows(_MADE)

_WORK: dict[str, tuple[Callable[[_Place], None], bytes, tuple[pytest.MarkDecorator, ...]]] = {
    "fill": (_fill, _FILL * (_SIZE // len(_FILL)), (needs.slot("memory_fill"),)),
    "copy-within": (_copy_within, _MADE, ()),
    "rows-within": (_copy_rows_within, _MADE, (needs.slot("memory_copy_2d"),)),
    "rows-in": (_copy_rows_in, _MADE, (needs.slot("memory_copy_2d"),)),
    "launch": (_launch, _MADE, (needs.table("kernels.1"),)),
}
"""What writes all of the target, and what it then holds."""


@contextmanager
def _places(device: Device) -> Iterator[list[_Place]]:
    with ExitStack() as stack:
        target, source = (stack.enter_context(memory(device, _SIZE)) for _ in range(2))
        rows, host_rows = (
            stack.enter_context(memory(device, len(_ROWS))),
            stack.enter_context(host_memory(device, _ROWS)),
        )
        device.write(source, _MADE)
        device.write(rows, _ROWS)
        first, second = stack.enter_context(some_streams(device))
        yield [
            _Place(device, stream, other, target, source, rows, host_rows)
            for stream, other in ((first, second), (second, first))
        ]


def _expect_in_place(place: _Place, enqueue: Callable[[_Place], None], made: bytes, what: str) -> None:
    """Between two copies to its target and one from it, on a stream that stood still meanwhile."""
    device, stream, target = place.device, place.stream, place.target
    with ExitStack() as stack:
        earlier, later, seen = (stack.enter_context(host_memory(device, data)) for data in (_EARLIER, _LATER, _BEFORE))
        device.write(target, _BEFORE, stream)
        with Hold(device, stream) as hold:
            device.copy(target, earlier, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
            enqueue(place)
            device.copy(seen, target, _SIZE, CopyKind.DEVICE_TO_HOST, stream)
            device.copy(target, later, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
            hold.let_run_early(_EARLY_SECONDS, place.other)
        which = "the default stream" if stream is None else "a created stream"
        what = f"{device}: {what} between two copies to its target on {which}"
        expect_bytes(ctypes.string_at(seen, _SIZE), made, f"{what}: a copy from the target that follows it")
        expect_bytes(device.read(target, _SIZE, stream), _LATER, f"{what}: the target at the end")


@promise("all calls 10.1 10.2, memory_copy 1, memory_copy_2d 1")
@pytest.mark.parametrize("work", [pytest.param(name, marks=marks) for name, (_, _, marks) in _WORK.items()])
def test_work_takes_its_place_on_its_stream(library: DeviceLibrary, work: str) -> None:
    """Work runs after what was enqueued before it on its stream, and what follows it sees its result."""
    enqueue, made, _ = _WORK[work]
    for device in library.devices:
        with _places(device) as places:
            for place in places:
                _expect_in_place(place, enqueue, made, work)


@promise("graph_launch 1")
@needs.table("graph.1")
def test_graphs_take_their_place_on_their_stream(library: DeviceLibrary) -> None:
    """A graph that is launched runs after what is on the stream, and what follows sees what it did."""
    for device in library.devices:
        with _places(device) as places, device.stream() as recorder:
            recorded = replace(places[0], stream=recorder)
            with graph_of(device, recorder, lambda recorded=recorded: _copy_within(recorded)) as graph:  # type: ignore[misc]
                for place in places:
                    _expect_in_place(
                        place,
                        lambda place, graph=graph: replay(place.device, graph, place.stream),  # type: ignore[misc]
                        _MADE,
                        "a graph's copy",
                    )


@promise("memory_copy 1")
@needs.devices(2)
@needs.capability("PEER")
def test_copies_between_devices_take_their_place(library: DeviceLibrary) -> None:
    """A copy to another device runs on the stream of its source, in its order."""
    first, second = library.devices[:2]
    for source, target in ((first, second), (second, first)):
        with (
            some_streams(source) as streams,
            memory(source, _SIZE) as src,
            memory(target, _SIZE) as dst,
            host_memory(source, _MADE) as made,
            host_memory(source, _LATER) as later,
        ):
            for stream, other in zip(streams, reversed(streams), strict=True):
                source.write(src, _BEFORE, stream)
                target.write(dst, _BEFORE)
                with Hold(source, stream) as hold:
                    source.copy(src, made, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    source.copy(dst, src, _SIZE, CopyKind.PEER, stream, dst_device=target)
                    source.copy(src, later, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    hold.let_run_early(_EARLY_SECONDS, other)
                expect_bytes(
                    target.read(dst, _SIZE),
                    _MADE,
                    f"{source}: a copy to {target} between two copies to its source",
                )


@promise("event_query 1, stream_query 1")
@needs.slot("stream_query")
def test_a_stream_that_is_held_is_pending_however_often_it_is_asked(library: DeviceLibrary) -> None:
    """stream_query and event_query say NOT_READY as long as work is pending, also the hundredth time."""
    for device in library.devices:
        with some_streams(device) as streams, device.event() as event:
            for stream in streams:
                with Hold(device, stream, patient=True) as hold:
                    device.record(event, stream)
                    for turn in range(100):
                        answers = {"stream_query": device.is_idle(stream), "event_query": device.is_complete(event)}
                        hold.expect_held("stream_query, event_record or event_query")
                        wrong = [slot for slot, complete in answers.items() if complete]
                        assert not wrong, f"{device}: call {turn + 1} of {wrong[0]} says OK, but the stream is held"
                        time.sleep(0)
