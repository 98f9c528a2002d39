"""What a device says about itself."""

import ctypes
from enum import IntFlag
from typing import Annotated

from torch_backend.abi._fields import I32, U64, c_struct
from torch_backend.abi.dtypes import DTYPE_MASK_WORDS


class Capability(IntFlag):
    """TB_CAP_*."""

    ASYNC = 1 << 0
    HOST_ACCESS = 1 << 1
    HOST_COHERENT = 1 << 2
    PAGEABLE_ACCESS = 1 << 3
    STREAM_ALLOC = 1 << 4
    EVENT_TIMING = 1 << 5
    EVENT_RERECORD = 1 << 6
    PEER = 1 << 7
    IPC = 1 << 8
    GRAPH = 1 << 9
    VIRTUAL_MEMORY = 1 << 10

    @classmethod
    def names(cls, flags: int) -> frozenset[str]:
        """The names of the flags that are set. Bits that device.h does not list have none."""
        return frozenset(name for name, flag in cls.__members__.items() if flag & flags)


NAME_BYTES = 64
ARCH_BYTES = 32
UUID_BYTES = 16


@c_struct
class tb_device_properties(ctypes.Structure):
    """The properties of one device."""

    struct_size: U64
    name: Annotated[bytes, ctypes.c_char * NAME_BYTES]
    arch: Annotated[bytes, ctypes.c_char * ARCH_BYTES]
    capabilities: U64
    total_memory_bytes: U64
    allocation_granularity_bytes: U64
    allocation_alignment_bytes: U64
    dtype_mask: Annotated["ctypes.Array[ctypes.c_uint64]", ctypes.c_uint64 * DTYPE_MASK_WORDS]
    capability_major: I32
    capability_minor: I32
    multiprocessor_count: I32
    warp_size: I32
    stream_priority_lowest: I32
    stream_priority_highest: I32
    numa_node: I32
    reserved: I32
    uuid: Annotated["ctypes.Array[ctypes.c_uint8]", ctypes.c_uint8 * UUID_BYTES]
