"""The optional table "kernels.1"."""

import ctypes
from ctypes import c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from enum import IntFlag
from typing import Annotated

from torch_backend.abi._fields import I32, U32, U64, Function, Pointer, Text, c_struct, function, out, slot
from torch_backend.abi.tensors import tb_arg


class KernelFlag(IntFlag):
    """TB_KERNEL_*."""

    NEEDS_CONTIGUOUS = 1
    ALLOCATES_OUTPUT = 2


@c_struct
class tb_kernel_context(ctypes.Structure):
    """What a kernel is called with besides its arguments."""

    struct_size: U64
    device: I32
    flags: U32
    stream: Pointer
    host: Pointer


tb_kernel_function = slot(ctypes.POINTER(tb_kernel_context), ctypes.POINTER(tb_arg), c_int32)


@c_struct
class tb_kernel(ctypes.Structure):
    """One kernel; ``dtype_mask`` is the address of uint64_t[DTYPE_MASK_WORDS]."""

    struct_size: U64
    op: Text
    function: Annotated[Function, tb_kernel_function]
    flags: U32
    reserved: U32
    dtype_mask: Pointer


@c_struct
class tb_kernel_table(ctypes.Structure):
    """The kernels of a device library; ``kernels`` is the address of ``const tb_kernel*[num_kernels]``."""

    struct_size: U64
    kernels: Pointer
    num_kernels: U64
    kernel_find: Annotated[Function, function(c_void_p, c_char_p)]
    module_load: Annotated[Function, slot(c_int32, c_char_p, c_void_p, c_uint64, out(c_void_p))]
    module_unload: Annotated[Function, slot(c_int32, c_void_p)]
    module_launch: Annotated[
        Function,
        slot(
            c_int32,
            c_void_p,
            c_char_p,
            out(c_uint32),
            out(c_uint32),
            c_uint32,
            out(c_void_p),
            out(c_uint32),
            c_uint32,
            c_void_p,
        ),
    ]
