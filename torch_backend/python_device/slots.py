"""The slots of the core table as functions over the methods of a PythonDevice: C's arguments in, C's outputs out."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from torch_backend.abi.core_table import (
    IPC_HANDLE_BYTES,
    CopyKind,
    EventFlag,
    MapAccess,
    MemoryKind,
    tb_core_table,
    tb_pointer_info,
)
from torch_backend.abi.statuses import Status
from torch_backend.abi.table import slots_of, type_of
from torch_backend.python_device.boundary import guarded
from torch_backend.python_device.device import PythonDevice
from torch_backend.python_device.handles import LiveHandles
from torch_backend.python_device.host import Host
from torch_backend.python_device.properties import DeviceProperties, PointerInfo, fill

_Kind = TypeVar("_Kind", bound=IntEnum)
Converter = Callable[[LiveHandles, Any], Any]
Finish = Callable[[LiveHandles, Any, Sequence[Any]], "int | None"]


@dataclass(frozen=True)
class _Slot:
    """How a call goes on: the C arguments that a method takes, and what is done with its result.

    ``finish`` gets the result and all C arguments, and returns a status, None for OK.
    """

    takes: tuple[Converter, ...]
    finish: Finish


# ---- arguments ----


def _number(_: LiveHandles, value: int) -> int:
    return value


def _address(_: LiveHandles, value: int | None) -> int:
    return value or 0


def _stream(handles: LiveHandles, value: int | None) -> Any:
    return handles.streams.get(value)


def _event(handles: LiveHandles, value: int | None) -> Any:
    return handles.events.get(value)


def _memory_kind(_: LiveHandles, value: int) -> MemoryKind:
    return _known(MemoryKind, value, "memory")


def _copy_kind(_: LiveHandles, value: int) -> CopyKind:
    return _known(CopyKind, value, "copy")


def _known(kind: type[_Kind], value: int, what: str) -> _Kind:
    try:
        return kind(value)
    except ValueError:
        raise NotImplementedError(f"there is no {what} of kind {value}") from None


def _event_flags(_: LiveHandles, value: int) -> EventFlag:
    if unknown := value & ~sum(EventFlag.__members__.values()):
        raise NotImplementedError(f"there are no event flags {unknown:#x}")
    return EventFlag(value)


def _access(_: LiveHandles, value: int) -> MapAccess:
    return MapAccess(value)


def _ipc_handle(_: LiveHandles, value: Any) -> bytes:
    return ctypes.string_at(value, IPC_HANDLE_BYTES)


# ---- results ----


def _nothing(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    pass


def _readiness(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> int:
    if not isinstance(result, bool):
        raise TypeError(f"{result!r} was returned; expected whether all is complete, a bool")
    return Status.OK if result else Status.NOT_READY


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} was returned; expected {what}, an int")
    return value


def _writes(what: str) -> Finish:
    """The result is a number, and goes where the last argument points."""

    def finish(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
        arguments[-1][0] = _whole(result, what)

    return finish


def _new_address(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    if _whole(result, "an address") == 0:
        raise TypeError("the address 0 was returned; raise OutOfMemory if there is no memory")
    arguments[-1][0] = result


def _new_stream(handles: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    arguments[-1][0] = handles.streams.add(result)


def _new_event(handles: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    arguments[-1][0] = handles.events.add(result)


def _forgotten_stream(handles: LiveHandles, _: Any, arguments: Sequence[Any]) -> None:
    handles.streams.remove(arguments[-1])


def _forgotten_event(handles: LiveHandles, _: Any, arguments: Sequence[Any]) -> None:
    handles.events.remove(arguments[-1])


def _free_and_total(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    free, total = result
    arguments[-2][0], arguments[-1][0] = _whole(free, "the free bytes"), _whole(total, "all bytes")


def _properties(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    if not isinstance(result, DeviceProperties):
        raise TypeError(f"{result!r} was returned; expected DeviceProperties")
    fill(arguments[-1], result.to_c())


def _pointer_info(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    if result is None:
        result = PointerInfo(MemoryKind.UNKNOWN)
    if not isinstance(result, PointerInfo):
        raise TypeError(f"{result!r} was returned; expected PointerInfo or None")
    info: tb_pointer_info = result.to_c()
    fill(arguments[-1], info)


def _exported(_: LiveHandles, result: Any, arguments: Sequence[Any]) -> None:
    if not isinstance(result, bytes) or len(result) > IPC_HANDLE_BYTES:
        raise TypeError(f"{result!r} was returned; expected a handle of at most {IPC_HANDLE_BYTES} bytes")
    ctypes.memmove(arguments[-1], result.ljust(IPC_HANDLE_BYTES, b"\0"), IPC_HANDLE_BYTES)


_COPY = (_number, _address, _number, _address, _number, _copy_kind, _stream)

_SLOTS: dict[str, _Slot] = {
    "device_count": _Slot((), _writes("the number of devices")),
    "device_properties": _Slot((_number,), _properties),
    "memory_allocate": _Slot((_number, _memory_kind, _number, _stream), _new_address),
    "memory_free": _Slot((_number, _memory_kind, _address, _number, _stream), _nothing),
    "memory_copy": _Slot(_COPY, _nothing),
    "stream_create": _Slot((_number, _number), _new_stream),
    "stream_destroy": _Slot((_number, _stream), _forgotten_stream),
    "stream_synchronize": _Slot((_number, _stream), _nothing),
    "stream_wait_event": _Slot((_number, _stream, _event), _nothing),
    "event_create": _Slot((_number, _event_flags), _new_event),
    "event_destroy": _Slot((_number, _event), _forgotten_event),
    "event_record": _Slot((_number, _event, _stream), _nothing),
    "event_query": _Slot((_number, _event), _readiness),
    "initialize": _Slot((), _nothing),
    "thread_bind": _Slot((_number,), _nothing),
    "device_synchronize": _Slot((_number,), _nothing),
    "memory_info": _Slot((_number,), _free_and_total),
    "memory_copy_2d": _Slot(
        (_number, _address, _number, _address, _number, _number, _number, _copy_kind, _stream), _nothing
    ),
    "memory_query": _Slot((_address,), _pointer_info),
    "memory_map": _Slot((_number, _address, _number, _access), _nothing),
    "memory_unmap": _Slot((_number, _address, _number, _access), _nothing),
    "host_register": _Slot((_address, _number), _nothing),
    "host_unregister": _Slot((_address,), _nothing),
    "stream_query": _Slot((_number, _stream), _readiness),
    "event_synchronize": _Slot((_number, _event), _nothing),
    "event_elapsed": _Slot((_number, _event, _event), _writes("nanoseconds")),
    "peer_can_access": _Slot((_number, _number), _writes("whether it can")),
    "ipc_export": _Slot((_number, _address), _exported),
    "ipc_import": _Slot((_number, _ipc_handle), _new_address),
    "ipc_close": _Slot((_number, _address), _nothing),
}


def _simple(slot: _Slot, method: Callable[..., Any], handles: LiveHandles) -> Callable[..., int | None]:
    takes, finish = slot.takes, slot.finish

    def call(*arguments: Any) -> int | None:
        # strict is off: what is past the inputs are outputs.
        result = method(*[convert(handles, value) for convert, value in zip(takes, arguments, strict=False)])
        return finish(handles, result, arguments)

    return call


def _memory_fill(method: Callable[..., Any], handles: LiveHandles) -> Callable[..., None]:
    """The pattern is a pointer and a size."""

    def call(device: int, dst: int, pattern: int, pattern_bytes: int, size_bytes: int, stream: int | None) -> None:
        method(device, dst, ctypes.string_at(pattern, pattern_bytes), size_bytes, handles.streams.get(stream))

    return call


def _stream_host_function(method: Callable[..., Any], handles: LiveHandles) -> Callable[..., None]:
    """The function is a pointer and its argument."""

    def call(device: int, stream: int | None, function: Callable[[int | None], None], argument: int | None) -> None:
        method(device, handles.streams.get(stream), lambda: function(argument))

    return call


_SPECIAL = {"memory_fill": _memory_fill, "stream_host_function": _stream_host_function}


def core_table(device: PythonDevice, handles: LiveHandles, host: Host) -> tb_core_table:
    """The table with every slot that the device offers. It keeps the device."""
    table = tb_core_table(struct_size=ctypes.sizeof(tb_core_table))
    for name in slots_of(tb_core_table):
        if not device.offers(name):
            continue
        method = getattr(device, name)
        if name in _SPECIAL:
            call: Callable[..., int | None] = _SPECIAL[name](method, handles)
        else:
            call = _simple(_SLOTS[name], method, handles)
        setattr(table, name, type_of(tb_core_table, name)(guarded(name, call, host)))
    return table
