"""One device of a device library: its slots as methods that raise DeviceError."""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch_backend.abi.constants import Capability, CopyKind, MemoryKind
from torch_backend.abi.statuses import DeviceError, Status
from torch_backend.abi.structs import tb_host_function, tb_ipc_handle, tb_pointer_info

if TYPE_CHECKING:
    from torch_backend.abi.library import DeviceLibrary

HOST_SIDE = -1
"""The device of the host's side of a copy."""


class Device:
    """One device. Addresses and the handles of streams and events are numbers; the default stream is None.

    On a device without TB_CAP_ASYNC there are no streams, and :meth:`synchronize` has nothing to do.

    Attributes:
        library: the device library.
        index: the number of the device in it.
        is_async: whether it declares TB_CAP_ASYNC.
    """

    def __init__(self, library: "DeviceLibrary", index: int) -> None:
        """Read the device's properties."""
        self.library = library
        self.index = index
        self.properties = library.properties(index)
        self._streams: list[int] = []  # those of blocks that have not ended
        self.is_async = bool(self.properties.capabilities & Capability.ASYNC)

    def __repr__(self) -> str:
        """As torch writes it, "name:0"."""
        return f"{self.library.name}:{self.index}"

    # ---- memory ----

    def allocate(self, size_bytes: int, kind: int = MemoryKind.DEVICE, stream: int | None = None) -> int:
        """New memory; its address.

        Without a stream it is for all of them: where memory is ordered by streams this waits for the default one.
        """
        address = ctypes.c_void_p()
        self.library.check("memory_allocate", self.index, kind, size_bytes, stream, ctypes.byref(address))
        if address.value is None:
            raise DeviceError("memory_allocate", Status.OK, f"no address was given for {size_bytes} bytes")
        if stream is None and self.properties.capabilities & Capability.STREAM_ALLOC:
            self.synchronize()
        return address.value

    def free(self, address: int, size_bytes: int, kind: int = MemoryKind.DEVICE, stream: int | None = None) -> None:
        """Give memory back."""
        self.library.check("memory_free", self.index, kind, address, size_bytes, stream)

    @contextmanager
    def allocation(self, size_bytes: int, kind: int = MemoryKind.DEVICE) -> Iterator[int]:
        """Memory for the duration of a block, which has to wait for the work that uses it.

        After an error this waits for all streams, because nobody else may have.
        """
        address = self.allocate(size_bytes, kind)
        try:
            yield address
        except BaseException:
            self._settle()
            raise
        finally:
            self.free(address, size_bytes, kind)

    def copy(
        self,
        dst: int,
        src: int,
        size_bytes: int,
        kind: CopyKind,
        stream: int | None = None,
        dst_device: "Device | None" = None,
    ) -> None:
        """Enqueue a copy; ``dst_device`` is the other device of a TB_COPY_PEER from this one."""
        to = dst_device.index if dst_device is not None else self.index
        self.library.check(
            "memory_copy",
            HOST_SIDE if kind == CopyKind.DEVICE_TO_HOST else to,
            dst,
            HOST_SIDE if kind == CopyKind.HOST_TO_DEVICE else self.index,
            src,
            size_bytes,
            kind,
            stream,
        )

    def write(self, address: int, data: bytes, stream: int | None = None) -> None:
        """Copy bytes to the device, and wait."""
        source = ctypes.create_string_buffer(data, len(data))
        self.copy(address, ctypes.addressof(source), len(data), CopyKind.HOST_TO_DEVICE, stream)
        self.synchronize(stream)

    def read(self, address: int, size_bytes: int, stream: int | None = None) -> bytes:
        """Copy bytes from the device, and wait."""
        target = ctypes.create_string_buffer(size_bytes)
        self.copy(ctypes.addressof(target), address, size_bytes, CopyKind.DEVICE_TO_HOST, stream)
        self.synchronize(stream)
        return target.raw

    def fill(self, address: int, pattern: bytes, size_bytes: int, stream: int | None = None) -> None:
        """Enqueue a fill."""
        self.library.check("memory_fill", self.index, address, pattern, len(pattern), size_bytes, stream)

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.library.check("memory_info", self.index, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # ---- addresses, and memory behind them ----

    @contextmanager
    def reservation(self, size_bytes: int) -> Iterator[int]:
        """Addresses without memory for the duration of a block, which has to take back what it commits there."""
        address = ctypes.c_void_p()
        self.library.check("address_reserve", self.index, size_bytes, ctypes.byref(address))
        if address.value is None:
            raise DeviceError("address_reserve", Status.OK, f"no address was given for {size_bytes} bytes")
        try:
            yield address.value
        finally:
            self.library.check("address_release", self.index, address.value, size_bytes)

    def commit(self, address: int, size_bytes: int) -> None:
        """Put memory behind a part of a reservation."""
        self.library.check("memory_commit", self.index, address, size_bytes)

    def decommit(self, address: int, size_bytes: int) -> None:
        """Take back what one commit put there."""
        self.library.check("memory_decommit", self.index, address, size_bytes)

    # ---- memory that processes share ----

    def export_memory(self, address: int) -> bytes:
        """What other processes import the allocation by, whose base this is."""
        handle = tb_ipc_handle()
        self.library.check("ipc_export", self.index, address, ctypes.byref(handle))
        return bytes(handle)

    def import_memory(self, handle: bytes) -> int:
        """The address here of what another process has exported, until :meth:`close_memory`."""
        address = ctypes.c_void_p()
        given = tb_ipc_handle.from_buffer_copy(handle)
        self.library.check("ipc_import", self.index, ctypes.byref(given), ctypes.byref(address))
        if address.value is None:
            raise DeviceError("ipc_import", Status.OK, "no address was given")
        return address.value

    def close_memory(self, address: int) -> None:
        """Give back what was imported."""
        self.library.check("ipc_close", self.index, address)

    # ---- streams ----

    @contextmanager
    def stream(self, priority: int | None = None) -> Iterator[int]:
        """A new stream for the duration of a block; the lowest priority unless another is given."""
        handle = ctypes.c_void_p()
        lowest = self.properties.stream_priority_lowest
        self.library.check("stream_create", self.index, lowest if priority is None else priority, ctypes.byref(handle))
        if handle.value is None:
            raise DeviceError("stream_create", Status.OK, "no stream was given")
        self._streams.append(handle.value)
        try:
            yield handle.value
        finally:
            self._streams.remove(handle.value)
            self.library.check("stream_destroy", self.index, handle)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream."""
        if self.is_async:
            self.library.check("stream_synchronize", self.index, stream)

    def _settle(self) -> None:
        """Let what is enqueued end, whatever comes of it."""
        if self.is_async:
            for stream in [None, *self._streams]:
                self.library.status("stream_synchronize", self.index, stream)

    def wait_event(self, event: int, stream: int | None = None) -> None:
        """Let a stream wait for an event."""
        self.library.check("stream_wait_event", self.index, stream, event)

    def host_function(self, function: Callable[[], None], stream: int | None = None) -> None:
        """Enqueue a Python function, which must not call into the device library."""
        number = next(_numbers)
        _functions[number] = function
        try:
            self.library.check("stream_host_function", self.index, stream, _run_function, number)
        except DeviceError:
            _functions.pop(number, None)
            raise

    # ---- events ----

    @contextmanager
    def event(self, flags: int = 0) -> Iterator[int]:
        """A new event for the duration of a block."""
        handle = self.create_event(flags)
        try:
            yield handle
        finally:
            self.destroy_event(handle)

    def create_event(self, flags: int = 0) -> int:
        """A new event."""
        handle = ctypes.c_void_p()
        self.library.check("event_create", self.index, flags, ctypes.byref(handle))
        if handle.value is None:
            raise DeviceError("event_create", Status.OK, "no event was given")
        return handle.value

    def destroy_event(self, event: int) -> None:
        """Destroy an event, which may be pending."""
        self.library.check("event_destroy", self.index, event)

    def record(self, event: int, stream: int | None = None) -> None:
        """Record an event."""
        self.library.check("event_record", self.index, event, stream)

    def is_complete(self, event: int) -> bool:
        """Whether the last record of the event is complete."""
        return self._is_ready("event_query", event)

    def is_idle(self, stream: int | None = None) -> bool:
        """Whether everything on a stream is complete."""
        return self._is_ready("stream_query", stream)

    def _is_ready(self, query: str, handle: int | None) -> bool:
        status = self.library.status(query, self.index, handle)
        if status not in (Status.OK, Status.NOT_READY):
            raise DeviceError(query, status, self.library.error_text())
        return status == Status.OK

    def elapsed_ns(self, start: int, end: int) -> int:
        """The time between two events that are complete."""
        elapsed = ctypes.c_int64()
        self.library.check("event_elapsed", self.index, start, end, ctypes.byref(elapsed))
        return elapsed.value

    # ---- what memory_query knows ----

    def query_pointer(self, address: int) -> tb_pointer_info:
        """What an address points into."""
        info = tb_pointer_info(struct_size=ctypes.sizeof(tb_pointer_info))
        self.library.check("memory_query", address, ctypes.byref(info))
        return info


_numbers = itertools.count(1)
_functions: dict[int, Callable[[], None]] = {}


@tb_host_function  # type: ignore[untyped-decorator]
def _run_function(number: int) -> None:
    function = _functions.pop(number, None)
    if function is not None:
        function()
