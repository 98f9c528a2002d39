"""torch.<name>: streams and events."""

import threading
from types import ModuleType

import pytest
import torch
from conftest import RunPython

ASYNC = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "2000"}


def test_types(backend: ModuleType, name: str) -> None:
    stream, event = backend.Stream(), backend.Event()
    assert isinstance(stream, torch.Stream)
    assert isinstance(event, torch.Event)
    assert stream.device == torch.device(name, backend.current_device())
    assert repr(stream).startswith(f"<torch.{name}.Stream device={name}:0 stream_id=0x")
    assert isinstance(event, backend.Event)
    assert not isinstance(torch.Event("cpu"), backend.Event)
    assert issubclass(backend.Event, torch.Event)


@pytest.mark.usefixtures("two_devices")
def test_stream_on_another_device(backend: ModuleType, name: str) -> None:
    for device in (1, f"{name}:1", torch.device(name, 1)):
        assert backend.Stream(device).device.index == 1
    with backend.device(1):
        assert backend.Stream().device.index == backend.Stream(-1).device.index == 1


def test_same_stream_by_its_id(backend: ModuleType) -> None:
    stream = backend.Stream()
    same = backend.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert isinstance(same, backend.Stream)
    assert same == stream
    assert hash(same) == hash(stream)
    assert same != backend.Stream()


def test_default_stream(backend: ModuleType) -> None:
    default = backend.default_stream()
    assert backend.current_stream() == default
    assert default != backend.Stream()
    assert default.query() is True


def test_priorities(backend: ModuleType) -> None:
    lowest, highest = backend.Stream.priority_range()
    assert highest <= 0 <= lowest
    assert backend.Stream(priority=highest).priority == highest
    assert backend.Stream(priority=lowest + 100).priority == lowest
    assert backend.default_stream().priority == 0


def test_stream_context(backend: ModuleType) -> None:
    before, stream = backend.current_stream(), backend.Stream()
    with backend.stream(stream):
        assert backend.current_stream() == stream == torch.accelerator.current_stream()
        with backend.stream(None):
            assert backend.current_stream() == stream
        with backend.stream(backend.Stream()):
            assert backend.current_stream() != stream
        assert backend.current_stream() == stream
    assert backend.current_stream() == before
    with stream:  # torch.Stream is a context manager, too
        assert backend.current_stream() == stream
    assert backend.current_stream() == before


@pytest.mark.usefixtures("two_devices")
def test_stream_context_of_another_device(backend: ModuleType) -> None:
    stream, there_before = backend.Stream(1), backend.current_stream(1)
    with backend.stream(stream):
        assert backend.current_device() == 1
        assert backend.current_stream() == stream
    assert backend.current_device() == 0
    assert backend.current_stream(1) == there_before


@pytest.mark.usefixtures("two_devices")
def test_set_stream(backend: ModuleType) -> None:
    before, stream = backend.current_stream(1), backend.Stream(1)
    try:
        backend.set_stream(stream)
        assert backend.current_device() == 1
        assert backend.current_stream() == stream
        backend.set_stream(None)
        assert backend.current_stream() == stream
    finally:
        backend.set_stream(before)
        backend.set_device(0)


def test_current_stream_belongs_to_the_thread(backend: ModuleType) -> None:
    seen = []
    with backend.stream(backend.Stream()):
        thread = threading.Thread(target=lambda: seen.append(backend.current_stream()))
        thread.start()
        thread.join()
    assert seen == [backend.default_stream()]


def test_stream_of_another_type(backend: ModuleType, name: str) -> None:
    class CpuStream:
        device = torch.device("cpu")

    for use in (backend.set_stream, backend.stream):
        with pytest.raises(ValueError, match=f"Expected a stream of {name}, but got one of 'cpu'"):
            use(CpuStream())


def test_events_order_streams(backend: ModuleType, name: str) -> None:
    producer, consumer = backend.Stream(), backend.Stream()
    with backend.stream(producer):
        x = torch.ones(1000, device=name)
        for _ in range(20):
            x = x * 1.5
        event = producer.record_event()
    consumer.wait_event(event)
    with backend.stream(consumer):
        y = x.clone()
    consumer.wait_stream(producer)
    consumer.synchronize()
    assert consumer.query()
    assert event.query()
    assert torch.equal(y.cpu(), torch.full((1000,), 1.5).pow(20)) or torch.allclose(y.cpu(), torch.tensor(1.5**20))


def test_event_life(backend: ModuleType, name: str) -> None:
    event = backend.Event()
    assert event.query() is True  # never recorded
    event.synchronize()
    event.record()
    event.record(backend.Stream())
    event.synchronize()
    assert event.query() is True
    event.wait()
    event.wait(backend.Stream())
    assert event.device == torch.device(name, 0)


def test_event_timing(backend: ModuleType, name: str) -> None:
    start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
    start.record()
    x = torch.ones(100_000, device=name)
    for _ in range(10):
        x = x + 1
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_event_without_timing(backend: ModuleType) -> None:
    start, end = backend.Event(), backend.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises((ValueError, RuntimeError), match="enable_timing=True"):
        start.elapsed_time(end)


def test_event_between_processes(backend: ModuleType, name: str) -> None:
    with pytest.raises(RuntimeError, match=f"Events of {name} cannot be shared"):
        backend.Event(interprocess=True)


def test_external_stream(backend: ModuleType) -> None:
    owned = backend.Stream()
    stream = backend.ExternalStream(0x1000, owned.device)
    assert isinstance(stream, backend.Stream)
    assert stream.device == owned.device
    assert stream == backend.get_stream_from_external(0x1000)
    assert stream != owned


def test_asynchronous_device(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        stream, other = torch.xcpu.Stream(), torch.xcpu.Stream()
        start, end = torch.xcpu.Event(enable_timing=True), torch.xcpu.Event(enable_timing=True)
        with torch.xcpu.stream(stream):
            start.record()
            x = torch.zeros(1000, device="xcpu")
            for _ in range(10):
                x += 1
            end.record()
        assert not end.query() and not stream.query()
        other.wait_event(end)
        with torch.xcpu.stream(other):
            y = x * 2
        x.record_stream(other)
        other.synchronize()
        assert end.query() and stream.query()
        assert start.elapsed_time(end) > 1
        assert y.cpu().eq(20).all()
        torch.xcpu.synchronize()

        handle = torch.xcpu.ExternalStream(stream.native_handle)
        with torch.xcpu.stream(handle):
            z = x + 1
        handle.synchronize()
        assert z.cpu().eq(11).all()
        """,
        env=ASYNC,
    )


def test_compiled_code_switches_streams(backend: ModuleType, name: str) -> None:
    stream = backend.Stream()

    def run(x: torch.Tensor) -> torch.Tensor:
        with stream:
            return x + 1

    x = torch.ones(4, device=name)
    stream.wait_stream(backend.current_stream())
    result = torch.compile(run, backend="eager")(x)
    stream.synchronize()
    assert result.cpu().tolist() == [2] * 4
