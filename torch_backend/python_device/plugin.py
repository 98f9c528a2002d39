"""A PythonDevice as tb_plugin and its tb_plugin_entry: what the core is handed."""

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

from torch_backend.abi.statuses import Status
from torch_backend.abi.structs import ABI_MAJOR, ABI_MINOR, REQUIRED_SLOTS, tb_host, tb_plugin, tb_plugin_entry_function
from torch_backend.abi.table import type_of
from torch_backend.python_device.device import PythonDevice, defines
from torch_backend.python_device.errors import text_of
from torch_backend.python_device.handles import LiveHandles
from torch_backend.python_device.host import Host, entered_with
from torch_backend.python_device.kernel_table import KernelTable
from torch_backend.python_device.slots import core_table

Source = type[PythonDevice] | PythonDevice
"""What a device can be given as: the class, of which the entry makes an object, or an object."""


def is_source(value: object) -> bool:
    """Whether ``value`` is a :class:`PythonDevice`, as a class or an object."""
    return isinstance(value, PythonDevice) or (isinstance(value, type) and issubclass(value, PythonDevice))


def entry_of(source: Source) -> Any:
    """The tb_plugin_entry of a device, a pointer to a function that stays valid until the process ends."""

    def entry(services: "ctypes._Pointer[tb_host]") -> int | None:
        with entered_with(services) as host:
            try:
                return ctypes.addressof(_Plugin(_made(source), host).plugin)
            except BaseException as error:
                host.fail(Status.INTERNAL, text_of(error))
                return None

    function = tb_plugin_entry_function(entry)
    _keep(function)
    return function


def address_of(function: Any) -> int:
    """Where a pointer to a function points."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def origin_of(source: Source, place: str | None) -> str:
    """What takes the place of a library's path: "module:Class"; for an object ``place``, else its address as well."""
    if isinstance(source, type):
        return f"{source.__module__}:{source.__qualname__}"
    return place or f"{type(source).__module__}:{type(source).__qualname__}@{id(source):#x}"


def _made(source: Source) -> PythonDevice:
    cls = source if isinstance(source, type) else type(source)
    if lacks := [slot for slot in REQUIRED_SLOTS if not defines(cls, slot)]:
        raise ValueError(f"{cls.__name__} has no {_join(lacks)}; every device needs {_join(REQUIRED_SLOTS)}.")
    if not isinstance(getattr(cls, "name", None), str):
        raise ValueError(f'{cls.__name__} has no name; set the class attribute name = "<the torch device name>".')
    if isinstance(source, PythonDevice):
        return source
    if inspect.isabstract(source):
        raise ValueError(f"{cls.__name__} leaves out {_join(sorted(source.__abstractmethods__))}.")
    made: PythonDevice = source()
    return made


def _join(names: Any) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


class _Plugin:
    """A tb_plugin, and all that it points at."""

    def __init__(self, device: PythonDevice, host: Host) -> None:
        device._host = host
        handles = LiveHandles()
        self._core = core_table(device, handles, host)
        self._kernels = KernelTable(device, handles, host) if KernelTable.is_offered(device) else None
        table: Callable[[bytes], int | None] = self._table
        self.plugin = tb_plugin(
            struct_size=ctypes.sizeof(tb_plugin),
            abi_major=ABI_MAJOR,
            abi_minor=ABI_MINOR,
            name=device.name.encode(),
            vendor=device.vendor.encode(),
            version=device.version.encode(),
            core=ctypes.addressof(self._core),
            table=type_of(tb_plugin, "table")(table),
        )
        if device.option_keys is not None:
            self._keys = (ctypes.c_char_p * (len(device.option_keys) + 1))(
                *(key.encode() for key in device.option_keys), None
            )
            self.plugin.option_keys = ctypes.addressof(self._keys)
        _keep(self)

    def _table(self, name: bytes) -> int | None:
        return ctypes.addressof(self._kernels.table) if name == b"kernels.1" and self._kernels is not None else None


def _keep(value: object) -> None:
    """Never let ``value`` go, not even when the interpreter ends: C may call it until the process does."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
