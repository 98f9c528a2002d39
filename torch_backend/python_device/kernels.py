"""Kernels written in Python: what they are given, and the entries of the table "kernels.1" that call them."""

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_backend.abi.constants import ArgTag, KernelFlag, MathFlag
from torch_backend.abi.dtypes import TORCH_DTYPES, mask_of
from torch_backend.abi.statuses import Status
from torch_backend.abi.structs import (
    DTYPE_MASK_WORDS,
    tb_arg,
    tb_device_id,
    tb_dtype,
    tb_kernel,
    tb_kernel_context,
    tb_kernel_function,
    tb_philox,
    tb_tensor,
)
from torch_backend.python_device.boundary import guarded
from torch_backend.python_device.errors import HandedOn
from torch_backend.python_device.handles import LiveHandles
from torch_backend.python_device.host import Host
from torch_backend.python_device.memory import host_memory

if TYPE_CHECKING:
    import numpy

KernelFunction = Callable[..., Any]

_NAMES = {(int(code), bits): name for name, (code, bits) in TORCH_DTYPES.items()}
_NUMPY = {"bool", *(name for name in TORCH_DTYPES if name.startswith(("int", "uint")))}
_NUMPY |= {"float16", "float32", "float64", "complex64", "complex128"}


@dataclass(frozen=True)
class TensorView:
    """A strided tensor in device memory, valid while the kernel runs.

    Attributes:
        address: of the first element; 0 for a tensor without elements.
        shape, strides: in elements.
        dtype: as torch names it, "float32".
        device: its index.
        storage: the address that the storage begins at.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    storage: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return TORCH_DTYPES[self.dtype][1] // 8

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The tensor as an array in place, for devices whose memory this process can use. It needs numpy.

        Raises NotImplementedError for a dtype that numpy has not: the core then goes another way.
        """
        import numpy
        from numpy.lib.stride_tricks import as_strided

        if self.dtype not in _NUMPY:
            raise NotImplementedError(f"numpy has no {self.dtype}")
        dtype = numpy.dtype(self.dtype)
        if 0 in self.shape:
            return numpy.empty(self.shape, dtype)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        flat = numpy.frombuffer(host_memory(self.address, extent * dtype.itemsize), dtype)
        return as_strided(flat, self.shape, [stride * dtype.itemsize for stride in self.strides])


@dataclass(frozen=True)
class Philox:
    """The random numbers of one kernel call: see tb_philox in device.h.

    Attributes:
        seed: the key of Philox 4x32-10.
        offset: a multiple of 4; the call has the counters that begin at a quarter of it.
    """

    seed: int
    offset: int


class KernelContext:
    """What a kernel has besides its arguments; valid while it runs, on the thread that called it.

    Attributes:
        device: the index of the device.
        stream: what stream_create returned; None for the default stream.
        compute_dtype: in which PyTorch computes a pointwise operator, as torch names it; None if that has no meaning.
        math_flags: what the program allows a kernel that asks for it; none of them for others.
    """

    def __init__(self, pointer: "ctypes._Pointer[tb_kernel_context]", handles: LiveHandles, host: Host) -> None:
        """Take the core's."""
        self.device: int = pointer.contents.device
        self.stream: Any = handles.streams.get(pointer.contents.stream)
        computed = pointer.contents.compute_dtype
        self.compute_dtype: str | None = _dtype(computed) if computed.bits else None
        self.math_flags = MathFlag(pointer.contents.flags)
        self._pointer = pointer
        self._host = host

    def alloc_output(self, index: int, shape: Sequence[int], dtype: str) -> TensorView:
        """Memory for output ``index``, the first being 0, of a kernel that allocates its outputs."""
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        tensor = tb_tensor(dtype=_to_c(dtype))
        status = self._host.services.alloc_output(self._pointer, index, len(shape), sizes, ctypes.byref(tensor))
        if status != Status.OK:
            raise HandedOn(status)
        return _view(tensor)

    def alloc_workspace(self, size_bytes: int) -> int:
        """The address of device memory that the core takes back when the kernel has returned."""
        address = ctypes.c_void_p()
        status = self._host.services.alloc_workspace(self._pointer, size_bytes, ctypes.byref(address))
        if status != Status.OK:
            raise HandedOn(status)
        return address.value or 0


@dataclass(frozen=True)
class Kernel:
    """A function that computes an operator, with what it asks for. A function alone stands for one that asks nothing.

    The function is called as ``function(context, *arguments)``: a :class:`KernelContext`, then the arguments of the
    operator's schema in its order and its outputs, as device.h says at tb_kernel_function. Tensors are
    :class:`TensorView`, generators :class:`Philox`, dtypes their names in torch, devices their index, lists tuples,
    None is None. It returns nothing; to leave a call to the next source of the operator it returns NotImplemented or
    raises NotImplementedError, before it has written anything.

    Attributes:
        needs_contiguous: tensors are made contiguous first.
        allocates_output: shapes of outputs depend on data: they are None, and come from KernelContext.alloc_output.
        mixed_dtypes: of a pointwise operator: inputs keep their dtypes, and the output has that which the caller asked
            for; the function computes in KernelContext.compute_dtype.
        numbers: of a pointwise operator: a number that PyTorch passes as a tensor is a number of Python.
        dtypes: of all tensors, as torch names them; None for those of the device.
        input_dtypes: dtypes are those of the inputs alone; outputs have what PyTorch gives them.
        math_flags: KernelContext.math_flags are what the program allows: TF32, shorter sums, determinism.
    """

    function: KernelFunction
    needs_contiguous: bool = False
    allocates_output: bool = False
    dtypes: Collection[str] | None = None
    mixed_dtypes: bool = False
    numbers: bool = False
    math_flags: bool = False
    input_dtypes: bool = False

    def to_c(self, op: str, handles: LiveHandles, host: Host) -> tb_kernel:
        """The entry of the kernel table. It keeps all that it points at."""
        flags = (
            self.needs_contiguous * KernelFlag.NEEDS_CONTIGUOUS
            | self.allocates_output * KernelFlag.ALLOCATES_OUTPUT
            | self.mixed_dtypes * KernelFlag.MIXED_DTYPES
            | self.numbers * KernelFlag.NUMBERS
            | self.math_flags * KernelFlag.MATH_FLAGS
            | self.input_dtypes * KernelFlag.INPUT_DTYPES
        )
        entry = tb_kernel(
            struct_size=ctypes.sizeof(tb_kernel),
            op=op.encode(),
            function=tb_kernel_function(guarded(op, _call(self.function, handles, host), host)),
            flags=int(flags),
        )
        if self.dtypes is not None:
            mask = (ctypes.c_uint64 * DTYPE_MASK_WORDS)(*mask_of(self.dtypes))
            entry.dtype_mask = ctypes.addressof(mask)
            entry.keeps = mask
        return entry


def _call(function: KernelFunction, handles: LiveHandles, host: Host) -> Callable[..., int | None]:
    def call(context: "ctypes._Pointer[tb_kernel_context]", args: Any, num_args: int) -> int | None:
        result = function(KernelContext(context, handles, host), *[_value(args[i]) for i in range(num_args)])
        return Status.UNSUPPORTED if result is NotImplemented else None

    return call


def _to_c(dtype: str) -> tb_dtype:
    code, bits = TORCH_DTYPES[dtype]
    return tb_dtype(code, bits, 1)


def _dtype(dtype: tb_dtype) -> str:
    try:
        return _NAMES[dtype.code, dtype.bits]
    except KeyError:
        raise NotImplementedError(f"the dtype {dtype.code} with {dtype.bits} bits has no name") from None


def _view(tensor: tb_tensor) -> TensorView:
    ndim = tensor.ndim
    storage = tensor.data or 0
    return TensorView(
        address=storage + tensor.byte_offset if storage else 0,
        shape=_numbers(tensor.shape, ndim, ctypes.c_int64),
        strides=_numbers(tensor.strides, ndim, ctypes.c_int64),
        dtype=_dtype(tensor.dtype),
        device=tensor.device.index,
        storage=storage,
    )


def _numbers(address: int | None, count: int, kind: Any) -> tuple[Any, ...]:
    return tuple((kind * count).from_address(address)) if count and address else ()


def _device(device: tb_device_id) -> int:
    return device.index


def _value(arg: tb_arg) -> Any:
    tag, v = arg.tag, arg.v
    pointer = v.p or 0
    if tag == ArgTag.TENSOR:
        return _view(tb_tensor.from_address(pointer))
    if tag in (ArgTag.INT, ArgTag.POINTER):
        return v.i
    if tag == ArgTag.NONE:
        return None
    if tag == ArgTag.BOOL:
        return bool(v.i)
    if tag == ArgTag.FLOAT:
        return v.f
    if tag == ArgTag.DTYPE:
        return _dtype(v.dtype)
    if tag == ArgTag.DEVICE:
        return _device(v.device)
    if tag == ArgTag.STRING:
        return ctypes.string_at(pointer, arg.length).decode()
    if tag == ArgTag.COMPLEX:
        return complex(*_numbers(v.p, 2, ctypes.c_double))
    if tag == ArgTag.GENERATOR:
        numbers = tb_philox.from_address(pointer)
        return Philox(numbers.seed, numbers.offset)
    if tag == ArgTag.INT_LIST:
        return _numbers(v.p, arg.length, ctypes.c_int64)
    if tag == ArgTag.FLOAT_LIST:
        return _numbers(v.p, arg.length, ctypes.c_double)
    if tag == ArgTag.TENSOR_LIST:
        tensors = _numbers(pointer, arg.length, ctypes.c_void_p)
        return tuple(None if tensor is None else _view(tb_tensor.from_address(tensor)) for tensor in tensors)
    raise NotImplementedError(f"there are no arguments with the tag {tag:#x}")
