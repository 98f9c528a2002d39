"""A device library, opened by a process without torch."""

import ctypes
import os
import re
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from torch_backend.abi import host
from torch_backend.abi.constants import Capability, CopyKind
from torch_backend.abi.device import Device
from torch_backend.abi.header import installed_declarations
from torch_backend.abi.statuses import DeviceError, Status
from torch_backend.abi.structs import (
    ABI_MAJOR,
    ABI_MINOR,
    ENTRY_NAME,
    OPTIONAL_TABLES,
    REQUIRED_SLOTS,
    tb_core_table,
    tb_device_properties,
    tb_host,
    tb_plugin,
    tb_plugin_entry_function,
)
from torch_backend.abi.table import Table, end_of
from torch_backend.files import elf, location

MAX_DEVICES = 64
DEVICE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

_PARAMETERS = {
    slot.name: [parameter.name for parameter in slot.parameters]
    for slot in installed_declarations().slots("tb_core_table")
}
"""The names of every slot's."""

_opened: dict[str, "DeviceLibrary"] = {}
_opened_lock = threading.Lock()


class LibraryError(RuntimeError):
    """A file is no device library, or one that cannot be used."""


class _Thread(threading.local):
    device: int | None = None
    error_text: str = ""


class DeviceLibrary:
    """A device library and its tables.

    Attributes:
        path: the file, "" for one that was made in this process.
        plugin: its tb_plugin, zero past the struct_size it declares.
        name: the torch device name.
        core: the core table.
        tables: the optional tables it offers, by name.
    """

    def __init__(self, plugin: int, path: str = "") -> None:
        """Take the address of a tb_plugin.

        Raises LibraryError if the two sides do not fit, or if a required slot is unset.
        """
        self.path = path
        self.plugin = _checked_plugin(plugin, f"Plugin '{path}'" if path else "The plugin")
        assert self.plugin.name is not None
        self.name = self.plugin.name.decode()
        self.core = _checked_core(self.plugin, self.name)
        self.tables = self._offered_tables()
        self._initialized = False
        self._thread = _Thread()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], options: Mapping[str, str] | None = None, services: tb_host | None = None
    ) -> "DeviceLibrary":
        """Open the device library at ``path``; the driver is not started. Opening it again gives the same object.

        "module:Class" instead of a path opens a :class:`torch_backend.PythonDevice`.

        ``options`` are what it reads through ``host->option``, as {"devices": "4"}; they need a file that is called
        libtorch_backend_<name>.so. ``services`` are given to it instead of our own, and must live as long as the
        process.

        Raises LibraryError, with what was asked, what is so and what to do, if that fails.
        """
        file = location.canonical(os.fspath(path))
        with _opened_lock:
            if file in _opened:
                if options or services:
                    raise LibraryError(
                        f"'{path}' is open already, and a device library reads its options and takes its services only "
                        "once. Give them to the first open()."
                    )
                return _opened[file]
            if options:
                _set_options(file, options)
            entry = _entry_of(file)
            _opened[file] = cls(_enter(entry, file, services or host.services()), file)
            return _opened[file]

    def _offered_tables(self) -> dict[str, Table]:
        if not self.plugin.table:
            return {}
        addresses = {name: self.plugin.table(name.encode()) for name in OPTIONAL_TABLES}
        return {name: Table(OPTIONAL_TABLES[name], address) for name, address in addresses.items() if address}

    # ---- calls ----

    def status(self, slot: str, *arguments: object) -> int:
        """Call a slot of the core table as the core does: on a thread that was bound to the device.

        Returns what it returned. Raises LibraryError if the slot is unset, and if the thread cannot be bound.
        """
        function = getattr(self.core, slot)
        if function is None:
            raise LibraryError(f"{self.name} leaves the slot {slot} unset.")
        device = _device_of(slot, arguments)
        if device is not None:
            self.bind(device)
        return self.noted(function(*arguments))

    def noted(self, status: int) -> int:
        """``status``, after the text for it was taken: for what is called past :meth:`status`."""
        if status != Status.OK:
            self._thread.error_text = host.take_error_text()
        return status

    def error_text(self) -> str:
        """What the device library said of the last call of this thread that did not return OK."""
        return self._thread.error_text

    def check(self, slot: str, *arguments: object) -> None:
        """Like :meth:`status`, but raise DeviceError unless it returned OK."""
        status = self.status(slot, *arguments)
        if status != Status.OK:
            raise DeviceError(slot, status, self.error_text())

    def bind(self, device: int) -> None:
        """Bind the calling thread to a device, as the core does before it calls a slot of any table for the device."""
        if self.core.thread_bind is None or self._thread.device == device:
            return
        status = self.noted(self.core.thread_bind(device))
        if status not in (Status.OK, Status.UNSUPPORTED):
            raise DeviceError("thread_bind", status, self.error_text())
        self._thread.device = device

    # ---- devices ----

    def initialize(self) -> None:
        """Start the driver, once."""
        if self._initialized:
            return
        if "initialize" in self.core:
            status = self.status("initialize")
            if status not in (Status.OK, Status.UNSUPPORTED):
                raise DeviceError("initialize", status, self.error_text())
        self._initialized = True

    @cached_property
    def device_count(self) -> int:
        """Number of devices."""
        count = ctypes.c_int32(-1)
        self.check("device_count", ctypes.byref(count))
        if not 0 <= count.value <= MAX_DEVICES:
            raise LibraryError(f"{self.name} reports {count.value} devices; 0 to {MAX_DEVICES} are possible.")
        return count.value

    def properties(self, device: int) -> tb_device_properties:
        """What the device says of itself now."""
        properties = tb_device_properties(struct_size=ctypes.sizeof(tb_device_properties))
        self.check("device_properties", device, ctypes.byref(properties))
        return properties

    @cached_property
    def capabilities(self) -> Capability:
        """The flags that every device has."""
        common = -1 if self.device_count else 0
        for device in range(self.device_count):
            common &= self.properties(device).capabilities
        known = sum(Capability.__members__.values())
        return Capability(common & known)

    @cached_property
    def devices(self) -> list[Device]:
        """The devices."""
        return [Device(self, index) for index in range(self.device_count)]


def _device_of(slot: str, arguments: tuple[Any, ...]) -> int | None:
    """The device that a call runs on; None if a thread may make it without a device of its own."""
    named = dict(zip(_PARAMETERS[slot], arguments, strict=False))
    if slot == "memory_copy":
        side = "src" if named["kind"] in (CopyKind.DEVICE_TO_HOST, CopyKind.PEER) else "dst"
        named["device"] = named[f"{side}_device"]
    device: int | None = None if slot == "device_properties" else named.get("device")
    return device


def _set_options(file: str, options: Mapping[str, str]) -> None:
    name = location.name_in(file)
    if name is None:
        raise LibraryError(
            f"Options {dict(options)} cannot be given to '{file}': which device it holds is not known before it is "
            "opened. Call the file libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the environment."
        )
    host.set_options(name, options)


def _entry_of(file: str) -> Any:
    if location.is_reference(file):
        return _python_entry(file)
    if not os.path.exists(file):
        raise LibraryError(f"There is no device library at '{file}'.")
    if not os.path.isfile(file):
        raise LibraryError(f"'{file}' is not a file, so it cannot be a device library.")
    fault = elf.fault_of(file)
    if fault is not None:
        raise LibraryError(f"Cannot load device library: {fault}")
    try:
        library = ctypes.CDLL(file, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise LibraryError(
            f"Cannot load device library '{file}': {error}. It must be a shared library for this machine whose own "
            "dependencies can be found."
        ) from error
    if not hasattr(library, ENTRY_NAME):
        raise LibraryError(
            f"'{file}' is a shared library but not a device library: it does not export {ENTRY_NAME}. Mark that "
            'function TB_EXPORT, and extern "C" in C++.'
        )
    entry = tb_plugin_entry_function((ENTRY_NAME, library))
    return entry


def _python_entry(reference: str) -> Any:
    from torch_backend.python_device import plugin

    try:
        source = location.resolve(reference)
    except (ImportError, AttributeError) as error:
        raise LibraryError(str(error)) from error
    if not plugin.is_source(source):
        raise LibraryError(f"'{reference}' is a {type(source).__name__}, not a torch_backend.PythonDevice.")
    return plugin.entry_of(source)


def _enter(entry: Any, file: str, services: tb_host) -> int:
    host.take_error_text()
    plugin: int | None = entry(ctypes.byref(services))
    text = host.take_error_text()
    if plugin is None:
        reason = text or f"its {ENTRY_NAME} returned NULL and gave no reason"
        raise LibraryError(f"Device library '{file}' refused to load: {reason}")
    return plugin


def _checked_plugin(address: int, what: str) -> tb_plugin:
    declared = ctypes.c_uint64.from_address(address).value
    if declared < end_of(tb_plugin, "core"):
        raise LibraryError(
            f"{what}: its tb_plugin has struct_size {declared}, too small to hold the core table. Set struct_size = "
            "sizeof(tb_plugin)."
        )
    plugin = tb_plugin()
    ctypes.memmove(ctypes.byref(plugin), address, min(declared, ctypes.sizeof(tb_plugin)))
    if plugin.abi_major != ABI_MAJOR:  # in the words of csrc/core/Handshake.cpp, which opens it for torch
        raise LibraryError(
            f"{what} speaks version {plugin.abi_major}.{plugin.abi_minor} of the device ABI and this torch_backend "
            f"speaks {ABI_MAJOR}.{ABI_MINOR}; the major versions must be equal. Rebuild the plugin with the headers in "
            "`python -m torch_backend --include-dir`, or install the torch_backend it was built for."
        )
    name = (plugin.name or b"").decode("ascii", errors="replace")
    if not DEVICE_NAME.fullmatch(name):
        raise LibraryError(
            f"{what} calls its device '{name}'; a device name is a lower-case letter followed by lower-case letters, "
            "digits and underscores, at most 63 characters."
        )
    if plugin.core is None:
        raise LibraryError(f"{what} has no core table (tb_plugin.core is NULL).")
    return plugin


def _checked_core(plugin: tb_plugin, name: str) -> Table:
    assert plugin.core is not None
    core = Table(tb_core_table, plugin.core)
    required = end_of(tb_core_table, REQUIRED_SLOTS[-1])
    if core.declared_size < required:
        raise LibraryError(
            f"The core table of '{name}' has struct_size {core.declared_size}, but the five required slots need "
            f"{required}. Set struct_size = sizeof(tb_core_table)."
        )
    if core.lacks:
        raise LibraryError(
            f"The core table of '{name}' is not usable: required and not set: {', '.join(core.lacks)}. See "
            "torch_backend/device.h for what each slot must do."
        )
    return core
