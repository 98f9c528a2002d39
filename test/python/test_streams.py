"""torch.<name>: the types of streams and events, and what they are made from."""

import ctypes
import os
from types import ModuleType

import pytest
import torch
from fixtures import in_process

LATE = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"}


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


def test_stream_of_another_type(backend: ModuleType, name: str) -> None:
    class CpuStream:
        device = torch.device("cpu")

    for use in (backend.set_stream, backend.stream):
        with pytest.raises(ValueError, match=f"Expected a stream of {name}, but got one of 'cpu'"):
            use(CpuStream())


def test_event_without_timing(backend: ModuleType) -> None:
    start, end = backend.Event(), backend.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises((ValueError, RuntimeError), match="enable_timing=True"):
        start.elapsed_time(end)


def test_events_belong_to_the_device(backend: ModuleType, name: str) -> None:
    event = backend.Event()
    event.record()
    assert event.device == torch.device(name, 0)


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


@in_process(LATE)
def test_work_on_an_external_stream() -> None:
    stream = torch.xcpu.Stream()
    with torch.xcpu.stream(stream):
        x = torch.zeros(1000, device="xcpu") + 10
    handle = torch.xcpu.ExternalStream(stream.native_handle)
    with torch.xcpu.stream(handle):
        y = x + 1
    handle.synchronize()
    assert stream.query()
    assert y.cpu().eq(11).all()


@in_process(lambda build_plugin: LATE | {"TORCH_BACKEND_PATH": build_plugin(source="owner.c", over="xcpu")})
def test_an_external_stream_is_forgotten_when_it_is_left() -> None:
    """Its owner may destroy it then, with work pending; a wait for the device still waits for the work."""
    owner = ctypes.CDLL(os.environ["TORCH_BACKEND_PATH"])
    owner.create_stream.restype = ctypes.c_void_p
    x, pinned = torch.zeros(1000, device="xcpu"), torch.ones(1000).pin_memory()
    torch.xcpu.synchronize()  # the owner's streams do not wait for the zeros
    for _ in range(100):
        stream = owner.create_stream()
        with torch.xcpu.stream(torch.xcpu.ExternalStream(stream)):
            x.copy_(pinned, non_blocking=True)
        assert owner.destroy_stream(ctypes.c_void_p(stream)) == 0
        torch.xcpu.synchronize()
        assert x.sum().item() == 1000
        x.zero_()
        torch.xcpu.synchronize()
    assert owner.calls_of_destroyed_streams() == 0


def test_priorities_may_be_any_number(backend: ModuleType) -> None:
    lowest, highest = backend.Stream.priority_range()
    for priority, expected in ((-(2**31), highest), (2**31 - 1, lowest)):
        assert backend.Stream(priority=priority).priority == expected


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
