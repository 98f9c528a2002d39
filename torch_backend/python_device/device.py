"""The class that a device written in Python derives from: a method for every slot of the core table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch_backend.abi.constants import CopyKind, EventFlag, LogLevel, MapAccess, MemoryKind
from torch_backend.python_device.host import Host, entering_host
from torch_backend.python_device.kernels import Kernel, KernelFunction
from torch_backend.python_device.properties import DeviceProperties, PointerInfo

Stream = Any
"""What stream_create returned; None is the device's default stream."""

Event = Any
"""What event_create returned."""


class PythonDevice(ABC):
    """A device library in Python: one object, which serves all devices of its kind.

    Methods are the slots of device.h, under their names, and what the header says of a slot holds for its method.
    Five are required; every other one that a class defines is offered, and what it does not define gets the core's
    default. Devices are numbers from 0, addresses are ints, handles of streams and events are the objects that
    stream_create and event_create returned.

    A method fails by raising: :class:`OutOfMemory` (or MemoryError), :class:`DeviceLost`, NotImplementedError (the
    device cannot do it, the core goes another way), ValueError, TimeoutError, :class:`InternalError`; from a query
    :class:`NotReady`. Anything else is an internal error too, and is reported with the lines that raised it.

    Methods are called by any thread, concurrently, under the interpreter's lock. They must not use tensors of their own
    device. The object lives until the process ends.

    Attributes:
        name: the torch device name, "acme" for torch.device("acme:0").
        vendor, version: of the device library.
        option_keys: the keys it asks :meth:`option` for; the core warns of settings that are not among them. None if
            it does not say.
        kernels: operators that the device computes itself, by overload: {"aten::add.out": add}. See :class:`Kernel`.
    """

    name: ClassVar[str]
    vendor: str = ""
    version: str = "0"
    option_keys: tuple[str, ...] | None = None
    kernels: Mapping[str, "KernelFunction | Kernel"] = {}

    _host: Host | None = None

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Any:
        """Give the object the services of the core before ``__init__``, where options are read."""
        self = super().__new__(cls)
        self._host = entering_host()
        return self

    # ---- services of the core ----

    def option(self, key: str) -> str | None:
        """The user's setting for "<name>.<key>"; None if there is none.

        It comes from ``activate(..., options={key: value})``, else from TORCH_BACKEND_<NAME>_<KEY>. In ``__init__``
        this works if the class was given to torch_backend, which then makes the object; not if an object was.
        """
        return self._services().option(f"{self.name}.{key}")

    def log(self, level: LogLevel, text: str) -> None:
        """Write to the core's log."""
        self._services().log(level, text)

    def _services(self) -> Host:
        if self._host is None:
            raise RuntimeError(
                f"{type(self).__name__} has not been loaded, so there are no options and no log yet. Give the class to "
                "torch_backend.load() or activate() instead of an object, or ask later."
            )
        return self._host

    # ---- required ----

    @abstractmethod
    def device_count(self) -> int:
        """Number of devices, 0 to 64. Cheap; must leave the process able to fork."""

    @abstractmethod
    def device_properties(self, device: int) -> DeviceProperties:
        """What the device is. The same every time."""

    @abstractmethod
    def memory_allocate(self, device: int, kind: MemoryKind, size_bytes: int, stream: Stream) -> int:
        """The address of new memory, aligned to allocation_alignment_bytes; never 0.

        Raise :class:`OutOfMemory` if there is no room, NotImplementedError for a ``kind`` that the device has not.
        """

    @abstractmethod
    def memory_free(self, device: int, kind: MemoryKind, address: int, size_bytes: int, stream: Stream) -> None:
        """Take memory back."""

    @abstractmethod
    def memory_copy(
        self, dst_device: int, dst: int, src_device: int, src: int, size_bytes: int, kind: CopyKind, stream: Stream
    ) -> None:
        """Copy; the device of a host's side is -1. :func:`host_memory` gives the bytes of the host's side."""

    # ---- asynchronous devices: all eight or none ----

    def stream_create(self, device: int, priority: int) -> Stream:
        """Return a new stream, any object but None."""
        raise NotImplementedError

    def stream_destroy(self, device: int, stream: Stream) -> None:
        """Forget the stream; work already on it still completes."""
        raise NotImplementedError

    def stream_synchronize(self, device: int, stream: Stream) -> None:
        """Block until everything that was enqueued before is complete. Let other threads run meanwhile."""
        raise NotImplementedError

    def stream_wait_event(self, device: int, stream: Stream, event: Event) -> None:
        """Let later work on the stream wait for the last record of the event."""
        raise NotImplementedError

    def event_create(self, device: int, flags: EventFlag) -> Event:
        """Return a new event, any object but None."""
        raise NotImplementedError

    def event_destroy(self, device: int, event: Event) -> None:
        """Forget the event, which may be pending."""
        raise NotImplementedError

    def event_record(self, device: int, event: Event, stream: Stream) -> None:
        """Let the event complete when everything that is on the stream now is complete."""
        raise NotImplementedError

    def event_query(self, device: int, event: Event) -> bool:
        """Whether the last record is complete, or there was none."""
        raise NotImplementedError

    # ---- optional ----

    def initialize(self) -> None:
        """Start the driver. Called once, before anything but device_count."""
        raise NotImplementedError

    def thread_bind(self, device: int) -> None:
        """Make the device the calling thread's."""
        raise NotImplementedError

    def device_synchronize(self, device: int) -> None:
        """Block until everything on the device is complete."""
        raise NotImplementedError

    def memory_info(self, device: int) -> tuple[int, int]:
        """Free and total bytes."""
        raise NotImplementedError

    def memory_fill(self, device: int, dst: int, pattern: bytes, size_bytes: int, stream: Stream) -> None:
        """Repeat the pattern of 1, 2, 4, 8 or 16 bytes over the range, whose size is a multiple of the pattern's."""
        raise NotImplementedError

    def memory_copy_2d(
        self,
        device: int,
        dst: int,
        dst_pitch_bytes: int,
        src: int,
        src_pitch_bytes: int,
        width_bytes: int,
        height: int,
        kind: CopyKind,
        stream: Stream,
    ) -> None:
        """Copy rows that are a pitch apart."""
        raise NotImplementedError

    def memory_query(self, address: int) -> PointerInfo | None:
        """What any address points into; None if it is not this library's."""
        raise NotImplementedError

    def memory_map(self, device: int, address: int, size_bytes: int, access: MapAccess) -> None:
        """Let the host use a range of device memory in place."""
        raise NotImplementedError

    def memory_unmap(self, device: int, address: int, size_bytes: int, access: MapAccess) -> None:
        """End what memory_map began."""
        raise NotImplementedError

    def host_register(self, address: int, size_bytes: int) -> None:
        """Page-lock the host's memory."""
        raise NotImplementedError

    def host_unregister(self, address: int) -> None:
        """Undo host_register."""
        raise NotImplementedError

    def stream_query(self, device: int, stream: Stream) -> bool:
        """Whether everything on the stream is complete."""
        raise NotImplementedError

    def stream_host_function(self, device: int, stream: Stream, function: Callable[[], None]) -> None:
        """Enqueue a function: called exactly once, after what is on the stream; what follows waits for it."""
        raise NotImplementedError

    def event_synchronize(self, device: int, event: Event) -> None:
        """Block until the last record is complete. Let other threads run meanwhile."""
        raise NotImplementedError

    def event_elapsed(self, device: int, start: Event, end: Event) -> int:
        """Nanoseconds of device time between two events. Raise :class:`NotReady` unless both are complete."""
        raise NotImplementedError

    def peer_can_access(self, device: int, peer: int) -> bool:
        """Whether kernels of the device may use the peer's memory."""
        raise NotImplementedError

    def ipc_export(self, device: int, address: int) -> bytes:
        """A handle of at most 64 bytes, by which another process opens the allocation."""
        raise NotImplementedError

    def ipc_import(self, device: int, handle: bytes) -> int:
        """Open an allocation of another process; its address here. The handle has 64 bytes."""
        raise NotImplementedError

    def ipc_close(self, device: int, address: int) -> None:
        """Close what ipc_import opened."""
        raise NotImplementedError

    def address_reserve(self, device: int, size_bytes: int) -> int:
        """Reserve addresses without memory; their base. With TB_CAP_VIRTUAL_MEMORY, as the next three."""
        raise NotImplementedError

    def address_release(self, device: int, address: int, size_bytes: int) -> None:
        """Give back a whole reservation, in which nothing is committed."""
        raise NotImplementedError

    def memory_commit(self, device: int, address: int, size_bytes: int) -> None:
        """Put memory behind a part of a reservation. Raise :class:`OutOfMemory` if there is none."""
        raise NotImplementedError

    def memory_decommit(self, device: int, address: int, size_bytes: int) -> None:
        """Take back what one memory_commit put there."""
        raise NotImplementedError

    # ---- kernels ----

    def kernel_find(self, op: str) -> "KernelFunction | Kernel | None":
        """The kernel for any operator that ``kernels`` does not list, by its overload; None if there is none.

        Asked once per operator, when the device is activated or the operator is defined.
        """
        raise NotImplementedError

    def offers(self, slot: str) -> bool:
        """Whether the device has the slot: by default, whether its class defines the method.

        Asked after ``__init__``. A device that has slots only with some options says so here.
        """
        return defines(type(self), slot)


def defines(cls: type[PythonDevice], slot: str) -> bool:
    """Whether a class has a method of its own for the slot."""
    return getattr(cls, slot, None) is not getattr(PythonDevice, slot, None)
