"""Streams and events, with the signatures of torch.cuda's."""

import contextlib
from typing import Any, cast

import torch
from torch.types import Device

from torch_backend import _C
from torch_backend.device_module._utils import _device_type, _existing_device_index
from torch_backend.device_module.devices import _lazy_init


class Stream(torch.Stream):
    """A queue of work on one device: what is enqueued runs in order, and unordered with other streams.

    Args:
        device: the stream's device; None and negative indices mean the current one.
        priority: lower numbers are served first; the nearest value in :meth:`priority_range` is taken.

    Streams come from a pool that belongs to the core: two Stream objects may name one queue, and then are equal.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> "Stream":
        """A stream of the pool, or with ``stream_id``, ``device_index`` and ``device_type`` the one they name."""
        if torch.compiler.is_dynamo_compiling():  # cannot make an object of a subclass, and has no use for one
            return _traced_stream(device, priority, **kwargs)
        _lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        if isinstance(device, int) and device < 0:
            device = None
        where = torch.device(_device_type(), _existing_device_index(device))
        return super().__new__(cls, where, priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority of the current device's streams; (0, 0) if it has no priorities."""
        return _C.stream_priority_range()

    @property
    def priority(self) -> int:
        """The priority that the stream was created with."""
        return _C.stream_priority(self.stream_id, self.device_index)

    def wait_event(self, event: torch.Event) -> None:
        """Work enqueued from now on waits for the last record of ``event``. Does not block the host."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Work enqueued from now on waits for what is on ``stream`` now. Does not block the host."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record ``event``, or a new one, on this stream and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything enqueued is complete. Does not block."""
        return super().query()

    def synchronize(self) -> None:
        """Wait until everything enqueued is complete."""
        super().synchronize()

    def __repr__(self) -> str:
        """Device and stream id."""
        return f"<torch.{_device_type()}.Stream device={self.device} stream_id={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream that was created outside of torch, by the vendor's own API.

    Args:
        stream_ptr: the plugin's stream handle (``tb_stream*``) as a number.
        device: the device that the stream belongs to; None means the current one.

    The caller keeps the stream alive while it is used.
    """

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs: Any) -> "ExternalStream":
        """The stream behind ``stream_ptr``."""
        _lazy_init()
        index = _existing_device_index(device)
        stream_id = _C.external_stream_id(stream_ptr, index)
        return cast("ExternalStream", super().__new__(cls, **_stream_key(stream_id, index)))


class _EventType(type):
    """Makes what :class:`Event` returns count as an Event."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) is torch.Event and getattr(instance.device, "type", None) == _device_type()


class Event(torch.Event, metaclass=_EventType):
    """A marker in a stream, to wait for, to ask for, and to measure time with.

    Args:
        enable_timing: the event can be used with :meth:`elapsed_time`.
        blocking: :meth:`synchronize` gives up the processor while it waits.
        interprocess, external: not supported; True raises RuntimeError.

    What is made is a torch.Event of the device, because torch.Event.elapsed_time and torch.Stream.record_event take no
    event of a subclass. The event belongs to the device of the stream that records it first.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> torch.Event:
        """An event that was not recorded."""
        _lazy_init()
        if external:
            raise RuntimeError(f"Events of {_device_type()} inside a graph cannot be waited for from outside.")
        if interprocess:
            raise RuntimeError(f"Events of {_device_type()} cannot be shared with other processes.")
        return torch.Event(_device_type(), enable_timing=enable_timing, blocking=blocking)


def _stream_key(stream_id: int, device_index: int) -> dict[str, int]:
    return {
        "stream_id": stream_id,
        "device_index": device_index,
        "device_type": int(torch._C._autograd.DeviceType.PrivateUse1.value),
    }


def current_stream(device: Device = None) -> Stream:
    """The calling thread's current stream on ``device``; None is the current device."""
    if torch.compiler.is_dynamo_compiling():
        return _traced_current_stream(device)
    _lazy_init()
    stream = torch._C._accelerator_getStream(_existing_device_index(device))
    return Stream(**_stream_key(stream.stream_id, stream.device_index))


def _traced_stream(device: Device, priority: int = 0, **kwargs: int) -> "Stream":
    made = torch.Stream(**kwargs) if kwargs else torch.Stream(_existing_device_index(device), priority=priority)
    return cast("Stream", made)


def _traced_current_stream(device: Device) -> Stream:
    if device is None:
        return cast("Stream", torch.accelerator.current_stream())
    return cast("Stream", torch.accelerator.current_stream(_existing_device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream of ``device`` that exists without being created."""
    _lazy_init()
    index = _existing_device_index(device)
    return Stream(**_stream_key(_C.default_stream_id(index), index))


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """The stream behind a plugin's handle; see :class:`ExternalStream`."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the calling thread's current stream on its device, and that device current. None does nothing."""
    if stream is None:
        return
    _check_stream(stream)
    torch._C._accelerator_setStream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Like :func:`set_stream`, for torch.compile."""
    set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def _check_stream(stream: torch.Stream) -> None:
    if stream.device.type != _device_type():
        raise ValueError(f"Expected a stream of {_device_type()}, but got one of '{stream.device}'.")


class StreamContext:
    """Context manager: inside it, work is enqueued on ``stream``, whose device is current.

    On exit the current device, and the current streams of both devices, are what they were. None changes nothing.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        """Remember the stream. Raises ValueError if it belongs to another device type."""
        if stream is not None:
            _check_stream(stream)
        self.stream = stream
        self.src_prev_stream: Stream | None = None
        self.dst_prev_stream: Stream | None = None

    def __enter__(self) -> None:
        """Make the stream current."""
        if self.stream is None:
            return
        self.src_prev_stream = current_stream()
        self.dst_prev_stream = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        """Make the streams before current again."""
        if self.stream is None:
            return
        set_stream(self.dst_prev_stream)
        set_stream(self.src_prev_stream)


def _traced_context(stream: torch.Stream | None) -> StreamContext:
    # A torch.Stream is a context manager, and one that the tracer knows.
    return cast("StreamContext", contextlib.nullcontext() if stream is None else stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: inside it, work is enqueued on ``stream``; see :class:`StreamContext`."""
    if torch.compiler.is_dynamo_compiling():
        return _traced_context(stream)
    return StreamContext(stream)
