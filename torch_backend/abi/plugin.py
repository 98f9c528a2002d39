"""The entry of a device library, and what both sides give each other there."""

import ctypes
from ctypes import c_char_p, c_int32, c_int64, c_uint64, c_void_p
from enum import IntEnum
from typing import Annotated

from torch_backend.abi._fields import U32, U64, Function, Pointer, Text, c_struct, function, out, slot
from torch_backend.abi.ccl_table import tb_ccl_table
from torch_backend.abi.graph_table import tb_graph_table
from torch_backend.abi.kernel_table import tb_kernel_context, tb_kernel_table
from torch_backend.abi.profiler_table import tb_profiler_table
from torch_backend.abi.tensors import tb_tensor

OPTIONAL_TABLES: dict[str, type[ctypes.Structure]] = {
    "graph.1": tb_graph_table,
    "kernels.1": tb_kernel_table,
    "ccl.1": tb_ccl_table,
    "prof.1": tb_profiler_table,
}


class LogLevel(IntEnum):
    """TB_LOG_*."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


@c_struct
class tb_host(ctypes.Structure):
    """The services of the process that opens a device library. ``fail`` is variadic, so only C can offer it."""

    struct_size: U64
    abi_major: U32
    abi_minor: U32
    fail: Annotated[Function, slot(c_int32, c_char_p)]
    log: Annotated[Function, function(None, c_int32, c_char_p)]
    option: Annotated[Function, function(c_char_p, c_char_p)]
    alloc_output: Annotated[
        Function,
        slot(ctypes.POINTER(tb_kernel_context), c_int32, c_int32, ctypes.POINTER(c_int64), ctypes.POINTER(tb_tensor)),
    ]
    alloc_workspace: Annotated[Function, slot(ctypes.POINTER(tb_kernel_context), c_uint64, out(c_void_p))]


@c_struct
class tb_plugin(ctypes.Structure):
    """A device library; ``core`` is the address of its tb_core_table, ``option_keys`` that of its array of strings."""

    struct_size: U64
    abi_major: U32
    abi_minor: U32
    name: Text
    vendor: Text
    version: Text
    core: Pointer
    table: Annotated[Function, function(c_void_p, c_char_p)]
    option_keys: Pointer


tb_plugin_entry_function = function(c_void_p, ctypes.POINTER(tb_host))
