"""The table kernels.1: that its entries are well-formed, and that simple kernels compute."""

import ctypes
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import pytest

from torch_backend.abi import (
    ABI_MINOR,
    DTYPE_MASK_WORDS,
    ArgTag,
    CopyKind,
    Device,
    DeviceLibrary,
    DeviceType,
    DTypeCode,
    KernelFlag,
    Status,
    dtypes_in,
    status_name,
    tb_arg,
    tb_arg_value,
    tb_device_id,
    tb_dtype,
    tb_kernel,
    tb_kernel_context,
    tb_kernel_table,
    tb_tensor,
)
from torch_backend.abi.table import end_of
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import Hold, expect_bytes, host_memory, memory, pattern, some_streams
from torch_conformance.threads import in_numbered_threads

pytestmark = needs.table("kernels.1")

_OP = re.compile(r"[A-Za-z_][\w.]*::\w+(\.\w+)?")
_MODULE_SLOTS = ("module_formats", "module_load", "module_unload", "module_function", "module_launch")
_EARLY_SECONDS = 0.01
_TURNS = 5
_UNKNOWN = b"conformance::no_such_operator"


def _entries(library: DeviceLibrary) -> Iterator[tuple[int, tb_kernel]]:
    table = library.tables["kernels.1"]
    for number in range(table.num_kernels):
        address = ctypes.c_void_p.from_address(table.kernels + 8 * number).value
        assert address is not None, f"entry {number} of kernels is NULL"
        yield number, tb_kernel.from_address(address)


def _kernel(library: DeviceLibrary, op: str) -> tb_kernel | None:
    return next((entry for _, entry in _entries(library) if entry.op == op.encode()), None)


@promise("all calls 3.2")
def test_the_table_has_its_size(library: DeviceLibrary) -> None:
    """The table reaches to its list at least, and is not longer than its minor version's."""
    size = library.tables["kernels.1"].declared_size
    assert size >= end_of(tb_kernel_table, "num_kernels"), f"tb_kernel_table declares {size} bytes: no room for a list"
    assert library.plugin.abi_minor > ABI_MINOR or size <= ctypes.sizeof(tb_kernel_table), (
        f"tb_kernel_table declares {size} bytes, but has {ctypes.sizeof(tb_kernel_table)}"
    )


@promise("tb_kernel_table.kernels")
def test_a_list_with_entries_is_there(library: DeviceLibrary) -> None:
    """A table offers kernels: in its list, by name, or as code."""
    table = library.tables["kernels.1"]
    assert table.kernels is not None or table.num_kernels == 0, "num_kernels is not 0, but kernels is NULL"
    assert table.num_kernels or "kernel_find" in table or "module_load" in table, "the table offers nothing"


@promise("tb_kernel.op, tb_kernel.flags, tb_kernel_table 1.4")
def test_entries_are_well_formed(library: DeviceLibrary) -> None:
    """Every entry names an operator and has a function, known flags and a struct_size."""
    for number, entry in _entries(library):
        what = f"entry {number} of kernels"
        assert entry.struct_size >= end_of(tb_kernel, "flags"), f"{what} declares {entry.struct_size} bytes"
        assert entry.op is not None, f"{what} has no name"
        name = entry.op.decode("utf-8")
        assert _OP.fullmatch(name), f"{what} is called '{name}', not 'namespace::operator.overload'"
        assert entry.function, f"{what} ({name}) has no function"
        unknown = entry.flags & ~sum(KernelFlag.__members__.values())
        assert library.plugin.abi_minor > ABI_MINOR or not unknown, f"{what} ({name}) has unknown flags {unknown:#x}"


@promise("tb_kernel.dtype_mask 1")
def test_masks_hold_dtypes(library: DeviceLibrary) -> None:
    """The dtypes of a kernel are some that PyTorch knows."""
    for number, entry in _entries(library):
        if entry.struct_size >= end_of(tb_kernel, "dtype_mask") and entry.dtype_mask is not None:
            mask = (ctypes.c_uint64 * DTYPE_MASK_WORDS).from_address(entry.dtype_mask)
            assert dtypes_in(mask), f"entry {number} of kernels ({entry.op!r}) has a dtype_mask without any dtype"


@promise("tb_kernel_table 1.4")
def test_operators_are_listed_once(library: DeviceLibrary) -> None:
    """No operator is listed twice."""
    names = [entry.op for _, entry in _entries(library)]
    twice = sorted({name.decode() for name in names if name and names.count(name) > 1})
    assert not twice, f"listed twice: {', '.join(twice)}"


@promise("tb_kernel 1")
def test_entries_stay_as_they_are(library: DeviceLibrary) -> None:
    """The entries are the same whenever they are read, also after the devices were used."""
    first = [bytes(entry) for _, entry in _entries(library)]
    for device in library.devices:
        with memory(device, 1) as address:
            device.write(address, b"x")
    assert first == [bytes(entry) for _, entry in _entries(library)], "the list of kernels changed"


@promise("kernel_find 1 2")
def test_a_kernel_is_found_under_its_own_name(library: DeviceLibrary) -> None:
    """kernel_find gives NULL, or a kernel of the name that was asked for, and the same one each time."""
    table = library.tables["kernels.1"]
    if "kernel_find" not in table:
        needs.not_offered("the table kernels.1 leaves the slot kernel_find unset")
    for name in (_UNKNOWN, b"aten::add.out", b"aten::relu", b""):
        found = table.kernel_find(name)
        if found is None:
            continue
        entry = tb_kernel.from_address(found)
        assert entry.op == name, f"kernel_find({name!r}) gave a kernel for {entry.op!r}"
        assert entry.function, f"kernel_find({name!r}) gave a kernel without a function"
        assert table.kernel_find(name) == found, f"kernel_find({name!r}) gave another kernel the second time"


@promise("tb_kernel_table 2.2")
def test_module_slots_are_set_together(library: DeviceLibrary) -> None:
    """module_formats and the slots of modules are set all or none; module_image alone may be missing."""
    is_set = [slot for slot in _MODULE_SLOTS if slot in library.tables["kernels.1"]]
    assert len(is_set) in (0, len(_MODULE_SLOTS)), f"of {_MODULE_SLOTS} only {is_set} are set"


# ---- what simple kernels compute ----

_Shape = tuple[int, ...]
_Function = Callable[..., float]
_POINTWISE: list[tuple[str, int, tuple[int, ...], _Function]] = [
    ("aten::add.out", 2, (2,), lambda a, b: a + 2 * b),
    ("aten::sub.out", 2, (2,), lambda a, b: a - 2 * b),
    ("aten::mul.out", 2, (), lambda a, b: a * b),
    ("aten::relu", 1, (), lambda a: max(a, 0.0)),
    ("aten::neg.out", 1, (), lambda a: -a),
]
_ROWS, _COLUMNS = 3, 5
_SHAPE = (_ROWS, _COLUMNS)
_GUARD = 7
"""Elements before and behind a tensor's that nobody may write."""


@dataclass(frozen=True)
class _Layout:
    """How the tensors of a call lie in memory: strides of the first input and of the rest, and which is the output."""

    first: _Shape = (_COLUMNS, 1)
    others: _Shape = (_COLUMNS, 1)
    in_place: bool = False

    @property
    def is_contiguous(self) -> bool:
        return self.first == self.others == (_COLUMNS, 1)


_LAYOUTS = {
    "contiguous": _Layout(),
    "transposed": _Layout((1, _ROWS), (1, _ROWS)),
    "one-transposed": _Layout((1, _ROWS)),
    "broadcast": _Layout((0, 1), (_COLUMNS, 1)),
    "in-place": _Layout(in_place=True),
}


class _Tensor:
    """A tensor of float32 with room around it, whose values an earlier copy on the call's stream brings."""

    def __init__(self, device: Device, values: list[float], strides: _Shape) -> None:
        self._device = device
        self._values = struct.pack(f"{len(values)}f", *values)
        self._size = len(values) * 4 + 8 * _GUARD
        self._untouched = pattern(self._size)
        self._memory = ExitStack()
        self.address = self._memory.enter_context(memory(device, self._size))
        self._source = self._memory.enter_context(host_memory(device, self._values))
        device.write(self.address, self._untouched)
        self.shape, self.strides = (ctypes.c_int64 * 2)(*_SHAPE), (ctypes.c_int64 * 2)(*strides)
        self.struct = tb_tensor(
            data=self.address,
            device=tb_device_id(DeviceType.EXTENSION, device.index),
            ndim=2,
            dtype=tb_dtype(DTypeCode.FLOAT, 32, 1),
            shape=ctypes.addressof(self.shape),
            strides=ctypes.addressof(self.strides),
            byte_offset=4 * _GUARD,
        )

    def bring(self, stream: int | None) -> None:
        """Enqueue the copy."""
        place, size = self.address + 4 * _GUARD, len(self._values)
        self._device.copy(place, self._source, size, CopyKind.HOST_TO_DEVICE, stream)

    def values(self, what: str) -> list[float]:
        """What it holds; what lies around it is as it was."""
        start, end = 4 * _GUARD, 4 * _GUARD + len(self._values)
        data = self._device.read(self.address, self._size)
        around = self._untouched[:start] + data[start:end] + self._untouched[end:]
        expect_bytes(data, around, f"{what}: the elements before and behind a tensor")
        return list(struct.unpack(f"{len(self._values) // 4}f", data[start:end]))

    def expect_unchanged(self, what: str) -> None:
        """It holds what was brought."""
        self.values(what)
        data = self._device.read(self.address + 4 * _GUARD, len(self._values))
        expect_bytes(data, self._values, what)

    def free(self) -> None:
        self._memory.close()


def _arguments(tensors: list[_Tensor], numbers: tuple[int, ...], out: _Tensor) -> "ctypes.Array[tb_arg]":
    tags = [tb_arg(tag=ArgTag.TENSOR, v=tb_arg_value(p=ctypes.addressof(tensor.struct))) for tensor in tensors]
    tags += [tb_arg(tag=ArgTag.INT, v=tb_arg_value(i=number)) for number in numbers]
    return (tb_arg * (len(tags) + 1))(*tags, tb_arg(tag=ArgTag.TENSOR, v=tb_arg_value(p=ctypes.addressof(out.struct))))


def _call(device: Device, kernel: tb_kernel, arguments: "ctypes.Array[tb_arg]", stream: int | None) -> int:
    core_only = ctypes.create_string_buffer(64)  # kernels pass it on, and do not look into it
    context = tb_kernel_context(
        struct_size=ctypes.sizeof(tb_kernel_context),
        device=device.index,
        stream=stream,
        host=ctypes.addressof(core_only),
    )
    device.library.bind(device.index)
    status = device.library.noted(kernel.function(ctypes.byref(context), arguments, len(arguments)))
    context.device, context.stream = 0, None
    return status


def _compute(
    device: Device,
    stream: int | None,
    kernel: tb_kernel,
    op: tuple[str, int, tuple[int, ...], _Function],
    layout: _Layout,
) -> None:
    """One call, whose arguments are gone when it has returned, on a stream that stands still meanwhile."""
    name, num_inputs, numbers, function = op
    count = _ROWS * _COLUMNS
    values = [[float((7 * i + 3 * k) % 11 - 5) for i in range(count)] for k in range(num_inputs)]
    strides = [layout.first, *[layout.others] * (num_inputs - 1)]
    tensors = [_Tensor(device, *pair) for pair in zip(values, strides, strict=True)]
    out = tensors[0] if layout.in_place else _Tensor(device, [float("nan")] * count, (_COLUMNS, 1))
    others = [_Tensor(device, [0.0] * count, (_COLUMNS, 1)) for _ in range(num_inputs + 1)]
    made = [*tensors, *([] if layout.in_place else [out]), *others]
    what = f"{device}: {name}"
    try:
        arguments = _arguments(tensors, numbers, out)
        can_hold = device.is_async and "stream_host_function" in device.library.core
        with Hold(device, stream) if can_hold else nullcontext() as hold:
            for tensor in made:
                tensor.bring(stream)
            was_held, began = hold is not None and not hold.ended, time.monotonic()
            status = _call(device, kernel, arguments, stream)
            waited = was_held and hold.ended and time.monotonic() - began > hold.seconds / 2
            # As the core's next call may have it: other tensors at the same places.
            gone = _arguments(others[:-1], tuple(0 for _ in numbers), others[-1])
            ctypes.memmove(arguments, gone, ctypes.sizeof(arguments))
            for tensor, other in zip(made, (others[i % len(others)] for i in range(len(made))), strict=True):
                tensor.struct.data = other.address
                ctypes.memset(tensor.shape, 0, ctypes.sizeof(tensor.shape))
            if hold is not None:
                hold.let_run_early(_EARLY_SECONDS)
        device.synchronize(stream)
        if status == Status.UNSUPPORTED:
            for tensor in made:
                tensor.expect_unchanged(f"{what} answered UNSUPPORTED, but a tensor")
            needs.not_offered(f"the kernel {name} answered UNSUPPORTED")
        assert status == Status.OK, f"{what} returned {status_name(status)}: {device.library.error_text()}"
        assert not waited, f"{what} waited for the stream that it was to enqueue its work on"
        places = [[row * y + column * x for row in range(_ROWS) for column in range(_COLUMNS)] for y, x in strides]
        expected = [
            function(*(held[place] for held, place in zip(values, at, strict=True))) for at in zip(*places, strict=True)
        ]
        actual = out.values(what)
        wrong = [i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b]
        assert not wrong, f"{what}: element {wrong[0]} is {actual[wrong[0]]} instead of {expected[wrong[0]]}"
        for tensor in tensors:
            if tensor is not out:
                tensor.expect_unchanged(f"{what}: an input after the call")
        for tensor in others:
            tensor.expect_unchanged(f"{what}: a tensor that the call was not given")
    finally:
        for tensor in made:
            tensor.free()


@promise("TB_STATUS_LIST 3.2, tb_kernel_function 1.1 9.2 10.2")
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("op", _POINTWISE, ids=lambda op: op[0])
def test_pointwise_kernels_compute(
    library: DeviceLibrary, op: tuple[str, int, tuple[int, ...], _Function], layout: str
) -> None:
    """A pointwise kernel gives what the operator means, in the order of its stream, and writes its output only.

    For inputs that lie in memory in every way, and arguments that are gone when the call has returned.
    """
    kernel = _kernel(library, op[0])
    if kernel is None:
        needs.not_offered(f"there is no kernel {op[0]}")
    if kernel.flags & KernelFlag.NEEDS_CONTIGUOUS and not _LAYOUTS[layout].is_contiguous:
        needs.not_offered(f"the kernel {op[0]} takes only contiguous tensors")
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                _compute(device, stream, kernel, op, _LAYOUTS[layout])


@promise("tb_kernel_function 1.2")
def test_threads_call_one_kernel(library: DeviceLibrary) -> None:
    """Threads that call one kernel at the same time each get their own result."""
    found = [(op, kernel) for op in _POINTWISE if (kernel := _kernel(library, op[0])) is not None]
    if not found:
        needs.not_offered(f"there is no kernel of {', '.join(op[0] for op in _POINTWISE)}")
    op, kernel = found[0]

    def call_often(_: int) -> None:
        for device in library.devices:
            with some_streams(device) as streams:
                for _ in range(_TURNS):
                    _compute(device, streams[-1], kernel, op, _LAYOUTS["contiguous"])

    in_numbered_threads(4, call_often)
