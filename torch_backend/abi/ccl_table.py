"""The optional table "ccl.1"."""

import ctypes
from ctypes import c_int32, c_uint64, c_void_p
from enum import IntEnum
from typing import Annotated

from torch_backend.abi._fields import U64, Function, c_struct, out, slot
from torch_backend.abi.tensors import tb_dtype


class Reduction(IntEnum):
    """TB_REDUCE_*."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


_INTO = (c_void_p, c_void_p, c_uint64, tb_dtype)  # in, out, count, dtype
_ON = (c_void_p, c_void_p)  # comm, stream
_SIZES = out(c_uint64)

REQUIRED_CCL_SLOTS = ("unique_id_create", "comm_create", "comm_destroy", "send", "recv")


@c_struct
class tb_ccl_table(ctypes.Structure):
    """Collectives."""

    struct_size: U64
    unique_id_bytes: U64
    unique_id_create: Annotated[Function, slot(c_void_p)]
    comm_create: Annotated[Function, slot(c_int32, c_int32, c_int32, c_void_p, out(c_void_p))]
    comm_destroy: Annotated[Function, slot(c_void_p)]
    send: Annotated[Function, slot(c_void_p, c_uint64, tb_dtype, c_int32, *_ON)]
    recv: Annotated[Function, slot(c_void_p, c_uint64, tb_dtype, c_int32, *_ON)]
    group_begin: Annotated[Function, slot()]
    group_end: Annotated[Function, slot()]
    comm_abort: Annotated[Function, slot(c_void_p)]
    comm_query_error: Annotated[Function, slot(c_void_p)]
    all_reduce: Annotated[Function, slot(*_INTO, c_int32, *_ON)]
    reduce: Annotated[Function, slot(*_INTO, c_int32, c_int32, *_ON)]
    broadcast: Annotated[Function, slot(*_INTO, c_int32, *_ON)]
    all_gather: Annotated[Function, slot(*_INTO, *_ON)]
    reduce_scatter: Annotated[Function, slot(*_INTO, c_int32, *_ON)]
    all_to_all: Annotated[Function, slot(c_void_p, _SIZES, _SIZES, c_void_p, _SIZES, _SIZES, tb_dtype, *_ON)]
