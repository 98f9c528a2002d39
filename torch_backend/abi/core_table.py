"""The core table: the functions that every device offers some of."""

import ctypes
from ctypes import c_int32, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag
from typing import Annotated

from torch_backend.abi._fields import I32, U32, U64, Function, Pointer, c_struct, function, out, slot
from torch_backend.abi.properties import tb_device_properties

IPC_HANDLE_BYTES = 64


class MemoryKind(IntEnum):
    """TB_MEMORY_*."""

    DEVICE = 0
    HOST = 1
    SHARED = 2
    UNKNOWN = 3


class CopyKind(IntEnum):
    """TB_COPY_*."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PEER = 4


class MapAccess(IntFlag):
    """TB_MAP_*."""

    READ = 1
    WRITE = 2


class EventFlag(IntFlag):
    """TB_EVENT_*."""

    TIMING = 1
    INTERPROCESS = 2


@c_struct
class tb_pointer_info(ctypes.Structure):
    """What memory_query says of an address."""

    struct_size: U64
    kind: U32
    device: I32
    base: Pointer
    size_bytes: U64


@c_struct
class tb_ipc_handle(ctypes.Structure):
    """An allocation, for another process."""

    bytes: Annotated["ctypes.Array[ctypes.c_uint8]", ctypes.c_uint8 * IPC_HANDLE_BYTES]


tb_host_function = function(None, c_void_p)

REQUIRED_SLOTS = ("device_count", "device_properties", "memory_allocate", "memory_free", "memory_copy")
ASYNC_SLOTS = (
    "stream_create",
    "stream_destroy",
    "stream_synchronize",
    "stream_wait_event",
    "event_create",
    "event_destroy",
    "event_record",
    "event_query",
)
"""All of them are set on an asynchronous device, none on another."""


@c_struct
class tb_core_table(ctypes.Structure):
    """The slots, with the signatures of device.h. Handles of streams and events are addresses, NULL is None."""

    struct_size: U64
    device_count: Annotated[Function, slot(out(c_int32))]
    device_properties: Annotated[Function, slot(c_int32, out(tb_device_properties))]
    memory_allocate: Annotated[Function, slot(c_int32, c_uint32, c_uint64, c_void_p, out(c_void_p))]
    memory_free: Annotated[Function, slot(c_int32, c_uint32, c_void_p, c_uint64, c_void_p)]
    memory_copy: Annotated[Function, slot(c_int32, c_void_p, c_int32, c_void_p, c_uint64, c_uint32, c_void_p)]
    stream_create: Annotated[Function, slot(c_int32, c_int32, out(c_void_p))]
    stream_destroy: Annotated[Function, slot(c_int32, c_void_p)]
    stream_synchronize: Annotated[Function, slot(c_int32, c_void_p)]
    stream_wait_event: Annotated[Function, slot(c_int32, c_void_p, c_void_p)]
    event_create: Annotated[Function, slot(c_int32, c_uint32, out(c_void_p))]
    event_destroy: Annotated[Function, slot(c_int32, c_void_p)]
    event_record: Annotated[Function, slot(c_int32, c_void_p, c_void_p)]
    event_query: Annotated[Function, slot(c_int32, c_void_p)]
    initialize: Annotated[Function, slot()]
    thread_bind: Annotated[Function, slot(c_int32)]
    device_synchronize: Annotated[Function, slot(c_int32)]
    memory_info: Annotated[Function, slot(c_int32, out(c_uint64), out(c_uint64))]
    memory_fill: Annotated[Function, slot(c_int32, c_void_p, c_void_p, c_uint32, c_uint64, c_void_p)]
    memory_copy_2d: Annotated[
        Function, slot(c_int32, c_void_p, c_uint64, c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_void_p)
    ]
    memory_query: Annotated[Function, slot(c_void_p, out(tb_pointer_info))]
    memory_map: Annotated[Function, slot(c_int32, c_void_p, c_uint64, c_uint32)]
    memory_unmap: Annotated[Function, slot(c_int32, c_void_p, c_uint64, c_uint32)]
    host_register: Annotated[Function, slot(c_void_p, c_uint64)]
    host_unregister: Annotated[Function, slot(c_void_p)]
    stream_query: Annotated[Function, slot(c_int32, c_void_p)]
    stream_host_function: Annotated[Function, slot(c_int32, c_void_p, tb_host_function, c_void_p)]
    event_synchronize: Annotated[Function, slot(c_int32, c_void_p)]
    event_elapsed: Annotated[Function, slot(c_int32, c_void_p, c_void_p, out(c_int64))]
    peer_can_access: Annotated[Function, slot(c_int32, c_int32, out(c_int32))]
    ipc_export: Annotated[Function, slot(c_int32, c_void_p, out(tb_ipc_handle))]
    ipc_import: Annotated[Function, slot(c_int32, out(tb_ipc_handle), out(c_void_p))]
    ipc_close: Annotated[Function, slot(c_int32, c_void_p)]
