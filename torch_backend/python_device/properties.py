"""What a device written in Python says of itself and of an address, as Python types."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from torch_backend.abi.constants import Capability, MemoryKind
from torch_backend.abi.dtypes import TORCH_DTYPES, mask_of
from torch_backend.abi.structs import DTYPE_MASK_WORDS, tb_device_properties, tb_pointer_info

ALIGNMENT = 64
"""The least that allocations may be aligned to, in bytes."""


_NONE = Capability(0)


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of one device; see tb_device_properties in device.h.

    Attributes:
        name: the product's, at most 63 bytes of UTF-8.
        total_memory_bytes: of the device; 0 for unknown.
        capabilities: a sum of :class:`Capability`; each needs the methods that device.h names for it.
        arch: what kernels are built for, at most 31 bytes.
        allocation_granularity_bytes: allocations are multiples of it; a power of two, 0 for no preference.
        allocation_alignment_bytes: of every address that memory_allocate returns; a power of two, at least 64.
        dtypes: that the device stores and computes in, as torch names them ("float32"); None for every dtype.
        capability: of the architecture, major and minor.
        stream_priorities: the lowest and the highest; lower numbers are served first.
        uuid: 16 bytes, or b"" for none.
        max_allocation_bytes: of one allocation; the core refuses more. 0 for as much as there is.
        commit_granularity_bytes: memory is committed in multiples of it, with TB_CAP_VIRTUAL_MEMORY; a power of two.
    """

    name: str
    total_memory_bytes: int = 0
    capabilities: Capability = _NONE
    arch: str = ""
    allocation_granularity_bytes: int = 0
    allocation_alignment_bytes: int = ALIGNMENT
    dtypes: Iterable[str] | None = None
    capability: tuple[int, int] = (0, 0)
    multiprocessor_count: int = 1
    warp_size: int = 1
    stream_priorities: tuple[int, int] = (0, 0)
    numa_node: int = -1
    uuid: bytes = b""
    max_allocation_bytes: int = 0
    commit_granularity_bytes: int = 0

    def to_c(self) -> tb_device_properties:
        """As the core reads it. Raises ValueError for what it could not hold."""
        lowest, highest = self.stream_priorities
        major, minor = self.capability
        uuid_bytes = _bytes_of("uuid")
        if len(self.uuid) not in (0, uuid_bytes):
            raise ValueError(f"uuid has {len(self.uuid)} bytes; it has {uuid_bytes}, or none.")
        properties = tb_device_properties(
            struct_size=ctypes.sizeof(tb_device_properties),
            name=_text("name", self.name),
            arch=_text("arch", self.arch),
            capabilities=int(self.capabilities),
            total_memory_bytes=self.total_memory_bytes,
            allocation_granularity_bytes=self.allocation_granularity_bytes,
            allocation_alignment_bytes=self.allocation_alignment_bytes,
            capability_major=major,
            capability_minor=minor,
            multiprocessor_count=self.multiprocessor_count,
            warp_size=self.warp_size,
            stream_priority_lowest=lowest,
            stream_priority_highest=highest,
            numa_node=self.numa_node,
            max_allocation_bytes=self.max_allocation_bytes,
            commit_granularity_bytes=self.commit_granularity_bytes,
        )
        properties.uuid[:] = list(self.uuid.ljust(uuid_bytes, b"\0"))
        if self.dtypes is not None:
            properties.dtype_mask = (ctypes.c_uint64 * DTYPE_MASK_WORDS)(*_mask(list(self.dtypes)))
        return properties


def _bytes_of(field: str) -> int:
    size: int = getattr(tb_device_properties, field).size
    return size


def _text(what: str, text: str) -> bytes:
    encoded, room = text.encode(), _bytes_of(what)
    if len(encoded) >= room:
        raise ValueError(f"{what} has {len(encoded)} bytes; at most {room - 1} fit: {text!r}.")
    return encoded


def _mask(names: list[str]) -> list[int]:
    unknown = [name for name in names if name not in TORCH_DTYPES]
    if unknown or not names:
        raise ValueError(f"dtypes are {names}; expected some of {', '.join(TORCH_DTYPES)}, or None for all of them.")
    return mask_of(names)


@dataclass(frozen=True)
class PointerInfo:
    """What an address of this device library points into; what the library does not know is None."""

    kind: MemoryKind
    device: int | None = None
    base: int | None = None
    size_bytes: int = 0

    def to_c(self) -> tb_pointer_info:
        """As the core reads it."""
        return tb_pointer_info(
            struct_size=ctypes.sizeof(tb_pointer_info),
            kind=self.kind,
            device=-1 if self.device is None else self.device,
            base=self.base,
            size_bytes=self.size_bytes,
        )


def fill(out: "ctypes._Pointer[ctypes.Structure]", value: ctypes.Structure) -> None:
    """Write a struct to where the caller has room for it, which may be less: its struct_size says so."""
    address = ctypes.cast(out, ctypes.c_void_p).value
    assert address is not None
    room = ctypes.c_uint64.from_address(address)
    filled = min(room.value, ctypes.sizeof(value))
    ctypes.memmove(address, ctypes.addressof(value), filled)
    room.value = filled
