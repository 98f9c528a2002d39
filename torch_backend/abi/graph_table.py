"""The optional table "graph.1"."""

import ctypes
from ctypes import c_int32, c_uint32, c_void_p
from enum import IntEnum
from typing import Annotated

from torch_backend.abi._fields import U64, Function, c_struct, out, slot


class CaptureMode(IntEnum):
    """TB_CAPTURE_*."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


@c_struct
class tb_graph_table(ctypes.Structure):
    """Recording of work and its replay."""

    struct_size: U64
    capture_begin: Annotated[Function, slot(c_int32, c_void_p, c_uint32)]
    capture_end: Annotated[Function, slot(c_int32, c_void_p, out(c_void_p))]
    stream_is_capturing: Annotated[Function, slot(c_int32, c_void_p, out(c_int32))]
    graph_instantiate: Annotated[Function, slot(c_int32, c_void_p)]
    graph_launch: Annotated[Function, slot(c_int32, c_void_p, c_void_p)]
    graph_destroy: Annotated[Function, slot(c_int32, c_void_p)]
