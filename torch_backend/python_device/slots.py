"""The slots of the core table as functions over the methods of a PythonDevice: C's arguments in, C's outputs out.

What becomes of an argument and of a result follows from its type and its name in device.h. The annotations of
:class:`PythonDevice` say which numbers are of an enumeration, and which results answer a query.
"""

import ctypes
from collections.abc import Callable
from enum import Flag, IntEnum, IntFlag
from functools import partial
from typing import Any

from torch_backend.abi.constants import MemoryKind
from torch_backend.abi.header import Function, Variable, installed_declarations
from torch_backend.abi.statuses import Status
from torch_backend.abi.structs import tb_core_table, tb_ipc_handle
from torch_backend.abi.table import type_of
from torch_backend.python_device.boundary import guarded
from torch_backend.python_device.device import PythonDevice
from torch_backend.python_device.handles import LiveHandles
from torch_backend.python_device.host import Host
from torch_backend.python_device.properties import DeviceProperties, PointerInfo, fill

Input = tuple[Callable[..., Any], slice]
"""Makes an argument of the method, and those of C that it is made of."""

Output = Callable[[Any, Any], None]
"""Writes a result to where C's argument points."""

_HANDLE_BYTES = ctypes.sizeof(tb_ipc_handle)


# ---- arguments ----


def _inputs(slot: Function, annotations: dict[str, Any], handles: LiveHandles) -> list[Input]:
    inputs: list[Input] = []
    names = [parameter.name for parameter in slot.parameters]
    for at, parameter in enumerate(slot.parameters):
        if _is_out(parameter) or (inputs and at < inputs[-1][1].stop):
            continue
        if parameter.type == "tb_host_function":
            inputs.append((partial, slice(at, at + 2)))  # its argument follows
        elif f"{parameter.name}_bytes" in names:
            inputs.append((ctypes.string_at, slice(at, at + 2)))
        else:
            inputs.append((_converter(parameter, annotations.get(parameter.name), handles), slice(at, at + 1)))
    return inputs


def _is_out(parameter: Variable) -> bool:
    return parameter.name.startswith("out_")


def _converter(parameter: Variable, annotation: Any, handles: LiveHandles) -> Callable[[Any], Any]:
    if live := handles.of(parameter.type):
        return live.get
    if parameter.type == "tb_ipc_handle*":
        return lambda value: ctypes.string_at(value, _HANDLE_BYTES)
    if parameter.type == "void*":
        return lambda value: value or 0
    if isinstance(annotation, type) and issubclass(annotation, IntEnum | IntFlag):
        return partial(_known, annotation)
    return lambda value: value


def _known(kind: type[IntEnum] | type[IntFlag], value: int) -> Any:
    members, is_flag = kind.__members__.values(), issubclass(kind, Flag)
    if value & ~sum(members) if is_flag else value not in members:
        raise NotImplementedError(f"there is no {kind.__name__} {hex(value) if is_flag else value}")
    return kind(value)


# ---- results ----


def _output(parameter: Variable, what: str, handles: LiveHandles) -> Output:
    if live := handles.of(parameter.type.removesuffix("*")):
        return lambda result, out: out.__setitem__(0, live.add(result))
    return _OUTPUTS.get(parameter.type) or partial(_number, what)


def _number(what: str, result: Any, out: Any) -> None:
    if not isinstance(result, int):
        raise TypeError(f"{result!r} was returned; expected {what}, an int")
    out[0] = result


def _new_address(result: Any, out: Any) -> None:
    _number("an address", result, out)
    if result == 0:
        raise TypeError("the address 0 was returned; raise OutOfMemory if there is no memory")


def _properties(result: Any, out: Any) -> None:
    if not isinstance(result, DeviceProperties):
        raise TypeError(f"{result!r} was returned; expected DeviceProperties")
    fill(out, result.to_c())


def _pointer_info(result: Any, out: Any) -> None:
    info = PointerInfo(MemoryKind.UNKNOWN) if result is None else result
    if not isinstance(info, PointerInfo):
        raise TypeError(f"{result!r} was returned; expected PointerInfo or None")
    fill(out, info.to_c())


def _exported(result: Any, out: Any) -> None:
    if not isinstance(result, bytes) or len(result) > _HANDLE_BYTES:
        raise TypeError(f"{result!r} was returned; expected a handle of at most {_HANDLE_BYTES} bytes")
    ctypes.memmove(out, result.ljust(_HANDLE_BYTES, b"\0"), _HANDLE_BYTES)


_OUTPUTS: dict[str, Output] = {
    "tb_device_properties*": _properties,
    "tb_pointer_info*": _pointer_info,
    "tb_ipc_handle*": _exported,
    "void**": _new_address,
}


def _answer(result: Any) -> int:
    if not isinstance(result, bool):
        raise TypeError(f"{result!r} was returned; expected whether all is complete, a bool")
    return Status.OK if result else Status.NOT_READY


# ---- calls ----


def _call(slot: Function, method: Callable[..., Any], handles: LiveHandles) -> Callable[..., int | None]:
    declared = getattr(PythonDevice, slot.name, None)
    annotations = getattr(declared, "__annotations__", {})
    inputs = _inputs(slot, annotations, handles)
    outs = [parameter for parameter in slot.parameters if _is_out(parameter)]
    # The only number is what the method says that it returns; of several the header's name says more.
    only = (declared.__doc__ or "").partition(".")[0] if declared and len(outs) == 1 else ""
    only = only[:1].lower() + only[1:]
    outputs = [_output(out, only or out.name.removeprefix("out_"), handles) for out in outs]
    is_query = not outputs and annotations.get("return") is bool
    forgotten = handles.of(slot.parameters[-1].type) if slot.name.endswith("_destroy") else None

    def call(*given: Any) -> int | None:
        result = method(*[convert(*given[of]) for convert, of in inputs])
        if is_query:
            return _answer(result)
        if forgotten:
            forgotten.remove(given[-1])
        results = (result,) if len(outputs) == 1 else result if outputs else ()
        for write, value, out in zip(outputs, results, given[len(given) - len(outputs) :], strict=True):
            write(value, out)
        return None

    return call


def core_table(device: PythonDevice, handles: LiveHandles, host: Host) -> tb_core_table:
    """The table with every slot that the device offers. It keeps the device."""
    table = tb_core_table(struct_size=ctypes.sizeof(tb_core_table))
    for slot in installed_declarations().slots("tb_core_table"):
        if device.offers(slot.name):
            call = guarded(slot.name, _call(slot, getattr(device, slot.name), handles), host)
            setattr(table, slot.name, type_of(tb_core_table, slot.name)(call))
    return table
