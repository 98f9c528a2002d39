"""The table kernels.1: that its entries are well-formed, and that simple kernels compute."""

import ctypes
import re
import struct
from collections.abc import Callable, Iterator

import pytest

from torch_backend.abi import (
    ABI_MINOR,
    DTYPE_MASK_WORDS,
    ArgTag,
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
from torch_backend.testing import needs

pytestmark = needs.table("kernels.1")

_OP = re.compile(r"[A-Za-z_][\w.]*::\w+(\.\w+)?")
_MODULE_SLOTS = ("module_formats", "module_load", "module_unload", "module_function", "module_launch")
_UNKNOWN = b"conformance::no_such_operator"


def _entries(library: DeviceLibrary) -> Iterator[tuple[int, tb_kernel]]:
    table = library.tables["kernels.1"]
    for number in range(table.num_kernels):
        address = ctypes.c_void_p.from_address(table.kernels + 8 * number).value
        assert address is not None, f"entry {number} of kernels is NULL"
        yield number, tb_kernel.from_address(address)


def _kernel(library: DeviceLibrary, op: str) -> tb_kernel | None:
    return next((entry for _, entry in _entries(library) if entry.op == op.encode()), None)


def test_the_table_has_its_size(library: DeviceLibrary) -> None:
    """The table reaches to its list at least, and is not longer than its minor version's."""
    size = library.tables["kernels.1"].declared_size
    assert size >= end_of(tb_kernel_table, "num_kernels"), f"tb_kernel_table declares {size} bytes: no room for a list"
    assert library.plugin.abi_minor > ABI_MINOR or size <= ctypes.sizeof(tb_kernel_table), (
        f"tb_kernel_table declares {size} bytes, but has {ctypes.sizeof(tb_kernel_table)}"
    )


def test_a_list_with_entries_is_there(library: DeviceLibrary) -> None:
    """A table offers kernels: in its list, by name, or as code."""
    table = library.tables["kernels.1"]
    assert table.kernels is not None or table.num_kernels == 0, "num_kernels is not 0, but kernels is NULL"
    assert table.num_kernels or "kernel_find" in table or "module_load" in table, "the table offers nothing"


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


def test_masks_hold_dtypes(library: DeviceLibrary) -> None:
    """The dtypes of a kernel are some that PyTorch knows."""
    for number, entry in _entries(library):
        if entry.struct_size >= end_of(tb_kernel, "dtype_mask") and entry.dtype_mask is not None:
            mask = (ctypes.c_uint64 * DTYPE_MASK_WORDS).from_address(entry.dtype_mask)
            assert dtypes_in(mask), f"entry {number} of kernels ({entry.op!r}) has a dtype_mask without any dtype"


def test_operators_are_listed_once(library: DeviceLibrary) -> None:
    """No operator is listed twice."""
    names = [entry.op for _, entry in _entries(library)]
    twice = sorted({name.decode() for name in names if name and names.count(name) > 1})
    assert not twice, f"listed twice: {', '.join(twice)}"


def test_entries_stay_as_they_are(library: DeviceLibrary) -> None:
    """The entries are the same whenever they are read."""
    first = [bytes(entry) for _, entry in _entries(library)]
    library.initialize()
    assert first == [bytes(entry) for _, entry in _entries(library)], "the list of kernels changed"


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


class _Float32:
    """Tensors of float32 on a device, for the duration of a call."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._blocks: list[tuple[int, int]] = []
        self._kept: list[object] = []

    def make(self, values: list[float], strides: _Shape) -> tb_tensor:
        size = 4 * len(values)
        address = self._device.allocate(size)
        self._blocks.append((address, size))
        self._device.write(address, struct.pack(f"{len(values)}f", *values))
        shape, steps = (ctypes.c_int64 * 2)(_ROWS, _COLUMNS), (ctypes.c_int64 * 2)(*strides)
        tensor = tb_tensor(
            data=address,
            device=tb_device_id(DeviceType.EXTENSION, self._device.index),
            ndim=2,
            dtype=tb_dtype(DTypeCode.FLOAT, 32, 1),
            shape=ctypes.addressof(shape),
            strides=ctypes.addressof(steps),
        )
        self._kept += [shape, steps, tensor]
        return tensor

    def values(self, tensor: tb_tensor) -> list[float]:
        address, size = next(block for block in self._blocks if block[0] == tensor.data)
        return list(struct.unpack(f"{size // 4}f", self._device.read(address, size)))

    def free(self) -> None:
        for address, size in self._blocks:
            self._device.free(address, size)


def _call(device: Device, kernel: tb_kernel, arguments: list[tb_arg]) -> int:
    core_only = ctypes.create_string_buffer(64)  # kernels pass it on, and do not look into it
    context = tb_kernel_context(
        struct_size=ctypes.sizeof(tb_kernel_context), device=device.index, host=ctypes.addressof(core_only)
    )
    array = (tb_arg * len(arguments))(*arguments)
    device.library.bind(device.index)
    status = device.library.noted(kernel.function(ctypes.byref(context), array, len(arguments)))
    device.synchronize()
    return status


def _tensor_arg(tensor: tb_tensor) -> tb_arg:
    return tb_arg(tag=ArgTag.TENSOR, v=tb_arg_value(p=ctypes.addressof(tensor)))


@pytest.mark.parametrize("transposed", [False, True], ids=["contiguous", "transposed"])
@pytest.mark.parametrize("op", _POINTWISE, ids=lambda op: op[0])
def test_pointwise_kernels_compute(
    library: DeviceLibrary, op: tuple[str, int, tuple[int, ...], _Function], transposed: bool
) -> None:
    """A pointwise kernel gives what the operator means, for contiguous and for transposed inputs."""
    name, num_inputs, numbers, function = op
    kernel = _kernel(library, name)
    if kernel is None:
        needs.not_offered(f"there is no kernel {name}")
    if transposed and kernel.flags & KernelFlag.NEEDS_CONTIGUOUS:
        needs.not_offered(f"the kernel {name} takes only contiguous tensors")
    count = _ROWS * _COLUMNS
    inputs = [[float((7 * i + 3 * k) % 11 - 5) for i in range(count)] for k in range(num_inputs)]
    strides = (1, _ROWS) if transposed else (_COLUMNS, 1)
    places = [row * strides[0] + column * strides[1] for row in range(_ROWS) for column in range(_COLUMNS)]
    for device in library.devices:
        tensors = _Float32(device)
        try:
            made = [tensors.make(values, strides) for values in inputs]
            out = tensors.make([float("nan")] * count, (_COLUMNS, 1))
            arguments = [_tensor_arg(tensor) for tensor in made]
            arguments += [tb_arg(tag=ArgTag.INT, v=tb_arg_value(i=number)) for number in numbers]
            status = _call(device, kernel, [*arguments, _tensor_arg(out)])
            if status == Status.UNSUPPORTED:
                needs.not_offered(f"the kernel {name} answered UNSUPPORTED")
            assert status == Status.OK, f"{device}: {name} returned {status_name(status)}: {library.error_text()}"
            expected = [function(*(values[place] for values in inputs)) for place in places]
            actual = tensors.values(out)
            wrong = [i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b]
            assert not wrong, (
                f"{device}: {name}: element {wrong[0]} is {actual[wrong[0]]} instead of {expected[wrong[0]]}"
            )
        finally:
            tensors.free()
