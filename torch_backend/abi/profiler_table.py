"""The optional table "prof.1"."""

import ctypes
from ctypes import c_char_p, c_int32, c_int64, c_uint64, c_void_p
from enum import IntFlag
from typing import Annotated

from torch_backend.abi._fields import I32, I64, U32, U64, Function, Text, c_struct, function, out, slot


class TraceKind(IntFlag):
    """TB_TRACE_*."""

    KERNEL = 1
    COPY = 2
    FILL = 4
    RUNTIME = 8


@c_struct
class tb_trace_record(ctypes.Structure):
    """One thing that the device did."""

    struct_size: U64
    kind: U32
    device: I32
    stream: U64
    correlation: U64
    start_ns: I64
    end_ns: I64
    name: Text
    size_bytes: U64


tb_trace_callback = function(None, c_void_p, ctypes.POINTER(tb_trace_record))

REQUIRED_PROFILER_SLOTS = (
    "trace_start",
    "trace_stop",
    "trace_collect",
    "correlation_push",
    "correlation_pop",
    "clock_pair",
)


@c_struct
class tb_profiler_table(ctypes.Structure):
    """What the device did, and when."""

    struct_size: U64
    trace_start: Annotated[Function, slot(c_uint64)]
    trace_stop: Annotated[Function, slot()]
    trace_collect: Annotated[Function, slot(tb_trace_callback, c_void_p)]
    correlation_push: Annotated[Function, slot(c_uint64)]
    correlation_pop: Annotated[Function, slot()]
    clock_pair: Annotated[Function, slot(c_int32, out(c_int64), out(c_int64))]
    range_push: Annotated[Function, slot(c_char_p)]
    range_pop: Annotated[Function, slot()]
