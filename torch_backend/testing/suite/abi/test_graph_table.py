"""The table graph.1: work that is recorded and replayed."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torch_backend.abi import CaptureMode, CopyKind, Device, DeviceError, DeviceLibrary, Status
from torch_backend.testing import needs
from torch_backend.testing.suite.abi._support import expect_bytes, memory, pattern

pytestmark = needs.table("graph.1")

_SIZE = 4096


def _check(device: Device, slot: str, *arguments: object) -> None:
    device.library.bind(device.index)
    status = device.library.noted(getattr(device.library.tables["graph.1"], slot)(device.index, *arguments))
    if status == Status.UNSUPPORTED:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    if status != Status.OK:
        raise DeviceError(slot, status, device.library.error_text())


@contextmanager
def _graph_of_a_copy(device: Device, stream: int, dst: int, src: int, mode: CaptureMode) -> Iterator[int]:
    """A graph that copies within the device, ready to be launched."""
    _check(device, "capture_begin", stream, mode)
    device.copy(dst, src, _SIZE, CopyKind.DEVICE_TO_DEVICE, stream)
    graph = ctypes.c_void_p()
    _check(device, "capture_end", stream, ctypes.byref(graph))
    assert graph.value is not None, f"{device}: capture_end gave no graph"
    try:
        _check(device, "graph_instantiate", graph.value)
        yield graph.value
    finally:
        _check(device, "graph_destroy", graph.value)


def test_all_slots_are_set(library: DeviceLibrary) -> None:
    """Every slot of the table is set."""
    unset = library.tables["graph.1"].lacks
    assert not unset, f"the table graph.1 is offered, but these slots are unset: {', '.join(unset)}"


@pytest.mark.parametrize("mode", list(CaptureMode), ids=lambda mode: mode.name)
def test_recorded_work_runs_when_it_is_launched(library: DeviceLibrary, mode: CaptureMode) -> None:
    """What is enqueued during a capture does not run then, and runs at every launch with what memory then holds."""
    for device in library.devices:
        with device.stream() as stream, memory(device, _SIZE) as src, memory(device, _SIZE) as dst:
            device.write(src, pattern(_SIZE, seed=1))
            device.write(dst, bytes(_SIZE))
            with _graph_of_a_copy(device, stream, dst, src, mode) as graph:
                device.synchronize(stream)
                expect_bytes(device.read(dst, _SIZE), bytes(_SIZE), f"{device}: after a copy was recorded")
                for seed in (1, 2, 3):
                    device.write(src, pattern(_SIZE, seed=seed))
                    _check(device, "graph_launch", graph, stream)
                    expect_bytes(device.read(dst, _SIZE, stream), pattern(_SIZE, seed=seed), f"{device}: launch {seed}")


def test_a_stream_tells_whether_it_records(library: DeviceLibrary) -> None:
    """stream_is_capturing is 1 between capture_begin and capture_end, and else 0."""
    for device in library.devices:
        with device.stream() as stream:

            def is_capturing(device: Device = device, stream: int = stream) -> int:
                answer = ctypes.c_int32(-7)
                _check(device, "stream_is_capturing", stream, ctypes.byref(answer))
                return answer.value

            before = is_capturing()
            _check(device, "capture_begin", stream, CaptureMode.RELAXED)
            during = is_capturing()
            graph = ctypes.c_void_p()
            _check(device, "capture_end", stream, ctypes.byref(graph))
            after = is_capturing()
            _check(device, "graph_destroy", graph)
            assert (before, during, after) == (0, 1, 0), (
                f"{device}: stream_is_capturing said {before} before, {during} during and {after} after a capture"
            )


def test_a_graph_may_be_destroyed_while_it_runs(library: DeviceLibrary) -> None:
    """A launch that is pending completes after its graph was destroyed."""
    for device in library.devices:
        with device.stream() as stream, memory(device, _SIZE) as src, memory(device, _SIZE) as dst:
            device.write(src, pattern(_SIZE, seed=1))
            device.write(dst, bytes(_SIZE))
            with _graph_of_a_copy(device, stream, dst, src, CaptureMode.RELAXED) as graph:
                _check(device, "graph_launch", graph, stream)
            expect_bytes(
                device.read(dst, _SIZE, stream), pattern(_SIZE, seed=1), f"{device}: a launch of a destroyed graph"
            )
