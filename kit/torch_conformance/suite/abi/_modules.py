"""The modules of a device: to load them, and to launch their functions."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from torch_backend.abi import (
    Device,
    DeviceError,
    DeviceLibrary,
    ParamKind,
    Status,
    status_name,
    tb_launch_param,
)
from torch_conformance import needs
from torch_conformance.suite.abi._module_sources import SOURCES

UNTOUCHED = 0x5A5A5A5A5A5A5A5A
"""What a place holds that nobody may write to."""

Shape = tuple[int, int, int]

ONE: Shape = (1, 1, 1)


@dataclass(frozen=True)
class Pointer:
    """A parameter that is an address in device memory; None is NULL."""

    address: int | None


@dataclass(frozen=True)
class Local:
    """A parameter that is local memory."""

    size_bytes: int


Parameter = Pointer | Local | ctypes.Structure | ctypes.c_uint8 | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_int64
"""Numbers and structs are values."""


class Launch:
    """What module_launch is given besides the function and the stream."""

    def __init__(self, parameters: Sequence[Parameter], grid: Shape = ONE, block: Shape = ONE) -> None:
        """Of every value a copy is taken."""
        self.params = (tb_launch_param * len(parameters))()
        self.grid, self.block = (ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*block)
        self._values: list[ctypes.Array[ctypes.c_char]] = []
        for param, given in zip(self.params, parameters, strict=True):
            if isinstance(given, Pointer):
                param.kind, param.data = ParamKind.POINTER, given.address
            elif isinstance(given, Local):
                param.kind, param.size_bytes = ParamKind.LOCAL, given.size_bytes
            else:
                value = ctypes.create_string_buffer(bytes(given), ctypes.sizeof(given))
                self._values.append(value)
                param.kind, param.size_bytes, param.data = ParamKind.VALUE, len(value), ctypes.addressof(value)

    def spoil(self) -> None:
        """Overwrite all of it."""
        for place in (*self._values, self.params, self.grid, self.block):
            ctypes.memset(place, 0x77, ctypes.sizeof(place))


class Modules:
    """The modules of one device, in one language.

    Attributes:
        device: the device.
        language: one of its module_formats, in which there are SOURCES.
    """

    def __init__(self, device: Device, language: str) -> None:
        """Compile nothing yet."""
        self.device = device
        self.language = language

    def __repr__(self) -> str:
        """The device and the language."""
        return f"{self.device}, {self.language}"

    def status(self, slot: str, *arguments: object) -> int:
        """Call a slot for the device, and return what it returned."""
        library = self.device.library
        library.bind(self.device.index)
        return library.noted(getattr(library.tables["kernels.1"], slot)(self.device.index, *arguments))

    def check(self, slot: str, *arguments: object) -> None:
        """Call a slot for the device; raise DeviceError unless it returned OK."""
        status = self.status(slot, *arguments)
        if status != Status.OK:
            raise DeviceError(slot, status, self.device.library.error_text())

    # ---- loading ----

    def try_load(self, code: bytes, language: str) -> tuple[int, int | None]:
        """What module_load returned, and the module that it gave."""
        out = ctypes.c_void_p(UNTOUCHED)
        status = self.status("module_load", language.encode(), code, len(code), ctypes.byref(out))
        if status != Status.OK:
            assert out.value == UNTOUCHED, f"{self}: module_load returned {status_name(status)} but wrote a module"
        return status, out.value

    @contextmanager
    def module(self, code: str | bytes, language: str | None = None) -> Iterator[int]:
        """A module for a block, after which nothing is launched from it."""
        code = code.encode() if isinstance(code, str) else code
        status, module = self.try_load(code, language or self.language)
        if status != Status.OK:
            raise DeviceError("module_load", status, self.device.library.error_text())
        assert module is not None, f"{self}: module_load gave no module"
        try:
            yield module
        finally:
            self.check("module_unload", module)

    def function(self, module: int, name: str) -> int:
        """The function of that name."""
        out = ctypes.c_void_p()
        self.check("module_function", module, name.encode(), ctypes.byref(out))
        assert out.value is not None, f"{self}: module_function gave no function for {name}"
        return out.value

    def image(self, module: int) -> bytes:
        """What module_load takes in place of the source."""
        size = ctypes.c_uint64(0)
        self.check("module_image", module, None, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self.check("module_image", module, room, ctypes.byref(size))
        assert size.value == len(room), f"{self}: an image has {len(room)} bytes, and then {size.value}"
        return room.raw

    # ---- launching ----

    @cached_property
    def _all_functions(self) -> int:
        # For as long as the process lives, so that it is compiled once.
        status, module = self.try_load(SOURCES[self.language].encode(), self.language)
        if status != Status.OK or module is None:
            raise DeviceError("module_load", status, self.device.library.error_text())
        return module

    def launch(self, name: str, what: Launch, stream: int | None = None) -> None:
        """Enqueue one of the functions that all SOURCES have."""
        self.enqueue(self.function(self._all_functions, name), what, stream)

    def enqueue(self, function: int, what: Launch, stream: int | None = None) -> None:
        """Enqueue a function."""
        self.check("module_launch", function, what.grid, what.block, what.params, len(what.params), stream)

    def constant(self, module: int, stream: int | None = None) -> int:
        """What the function of a module of constant_source writes."""
        with self.device.allocation(4) as address:
            self.enqueue(self.function(module, "write_value"), Launch([Pointer(address)]), stream)
            return int.from_bytes(self.device.read(address, 4, stream), "little", signed=True)

    # ---- limits ----

    @property
    def largest_row(self) -> int:
        """How many items a block may have that lie in its first dimension."""
        properties = self.device.properties
        limits = [limit for limit in (properties.max_block[0], properties.max_block_items) if limit]
        return int(min(limits, default=64))

    def fits(self, block: Shape) -> bool:
        """Whether a block may be launched."""
        properties = self.device.properties
        items = block[0] * block[1] * block[2]
        return items <= (properties.max_block_items or items) and all(
            side <= (limit or side) for side, limit in zip(block, properties.max_block, strict=True)
        )


_known: dict[tuple[int, int, str], Modules] = {}


def formats_of(library: DeviceLibrary) -> list[str]:
    """The module_formats of a device library; ends the test as not offered if it has no modules."""
    table = library.tables["kernels.1"]
    if "module_load" not in table or table.module_formats is None:
        needs.not_offered("the table kernels.1 offers no modules")
    entries = (ctypes.c_char_p * _MOST_FORMATS).from_address(table.module_formats)
    formats: list[str] = []
    while (entry := entries[len(formats)]) is not None:
        formats.append(entry.decode("utf-8"))
        assert len(formats) < _MOST_FORMATS, f"module_formats has no NULL among its first {_MOST_FORMATS} entries"
    return formats


_MOST_FORMATS = 64


def modules_of(library: DeviceLibrary) -> list[Modules]:
    """Of every device, in every language that the tests are written in; not offered if there is none."""
    formats = formats_of(library)
    languages = [language for language in formats if language in SOURCES]
    if not languages:
        needs.not_offered(f"the tests of modules are written in {', '.join(SOURCES)}, the device takes {formats}")
    return [modules_in(device, language) for device in library.devices for language in languages]


def modules_in(device: Device, language: str) -> Modules:
    """Of one device, in one language."""
    return _known.setdefault((id(device.library), device.index, language), Modules(device, language))
