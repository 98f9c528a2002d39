"""What is impossible in what a device says of itself."""

import ctypes
import math
from collections.abc import Iterator

from torch_backend.abi import ABI_MINOR, ASYNC_SLOTS, Capability, DeviceLibrary, dtypes_in, tb_device_properties

_MAX_SIZE_BYTES = 1 << 30  # of alignment and granularity
_MAX_MEMORY_BYTES = 1 << 56  # no machine addresses more


def faults_of(library: DeviceLibrary, device: int) -> Iterator[str]:
    """What is wrong with the properties of a device, each as a sentence that says what would be right."""
    properties = library.properties(device)
    room = ctypes.sizeof(tb_device_properties)
    if properties.struct_size > room:
        yield (
            f"struct_size is {properties.struct_size} on return, but the caller has room for {room} bytes. Fill no "
            "more than the caller's struct_size, and set it to what was filled."
        )
    yield from _text_faults(properties)
    yield from _size_faults(properties)
    yield from _number_faults(properties)
    yield from _limit_faults(properties)
    yield from _capability_faults(library, properties.capabilities)


def _text_faults(properties: tb_device_properties) -> Iterator[str]:
    for field in ("name", "arch", "driver_version"):
        descriptor = getattr(tb_device_properties, field)
        raw = ctypes.string_at(ctypes.addressof(properties) + descriptor.offset, descriptor.size)
        text, end, _ = raw.partition(b"\0")
        if not end:
            yield f"{field} fills all {len(raw)} bytes and has no NUL at its end."
            continue
        try:
            text.decode()
        except UnicodeDecodeError:
            yield f"{field} is no UTF-8: {text!r}."
    if not properties.name:
        yield "name is empty; it is what torch.<device>.get_device_name() tells the user."


def _size_faults(properties: tb_device_properties) -> Iterator[str]:
    for field, least in (("allocation_alignment_bytes", 64), ("allocation_granularity_bytes", 0)):
        size = getattr(properties, field)
        if size & (size - 1) or not least <= size <= _MAX_SIZE_BYTES:
            yield f"{field} is {size}; it must be a power of two and at least {least}, at most 2^30."
    commit = properties.commit_granularity_bytes
    is_virtual = properties.capabilities & Capability.VIRTUAL_MEMORY
    if not (0 < commit <= _MAX_SIZE_BYTES and commit & (commit - 1) == 0 if is_virtual else commit == 0):
        yield (
            f"commit_granularity_bytes is {commit}; it must be a power of two of at most 2^30 with "
            "TB_CAP_VIRTUAL_MEMORY, and 0 without."
        )
    total = properties.total_memory_bytes
    if total > _MAX_MEMORY_BYTES:
        yield f"total_memory_bytes is {total}; it must be the size of the memory, in bytes, or 0 if that is unknown."
    if 0 < total < properties.max_allocation_bytes:
        yield (
            f"max_allocation_bytes is {properties.max_allocation_bytes}, and total_memory_bytes only {total}; 0 means "
            "as much as there is."
        )
    if 0 < properties.max_allocation_bytes < properties.allocation_granularity_bytes:
        yield (
            f"max_allocation_bytes is {properties.max_allocation_bytes}, less than allocation_granularity_bytes, "
            f"{properties.allocation_granularity_bytes}: nothing could be allocated."
        )


def _number_faults(properties: tb_device_properties) -> Iterator[str]:
    for field, least in (("multiprocessor_count", 0), ("warp_size", 1), ("numa_node", -1)):
        value = getattr(properties, field)
        if value < least:
            yield f"{field} is {value}; it must be at least {least}."
    if properties.reserved:
        yield f"reserved is {properties.reserved}; it must be 0."
    lowest, highest = properties.stream_priority_lowest, properties.stream_priority_highest
    if highest > lowest:
        yield f"stream_priority_highest is {highest} and _lowest {lowest}; lower numbers are served first."
    if not dtypes_in(properties.dtype_mask):
        yield "dtype_mask has no dtype of PyTorch; all zero means every dtype."


def _limit_faults(properties: tb_device_properties) -> Iterator[str]:
    items, sides = properties.max_block_items, list(properties.max_block)
    if all(sides) and items > math.prod(sides):
        yield f"max_block_items is {items}, and max_block {sides} has room for {math.prod(sides)}."
    preferred = properties.preferred_block_items
    if 0 < items < preferred:
        yield f"preferred_block_items is {preferred}, more than max_block_items, {items}."
    if properties.reserved_limits:
        yield f"reserved_limits is {properties.reserved_limits}; it must be 0."
    if not dtypes_in(properties.compute_dtype_mask):
        yield "compute_dtype_mask has no dtype of PyTorch; all zero means all that dtype_mask has."
    elif any(properties.compute_dtype_mask):
        beyond = sorted(dtypes_in(properties.compute_dtype_mask) - dtypes_in(properties.dtype_mask))
        if beyond:
            yield f"compute_dtype_mask has {', '.join(beyond)}, which dtype_mask does not: they are not even stored."


def _capability_faults(library: DeviceLibrary, flags: int) -> Iterator[str]:
    unknown = flags & ~sum(Capability.__members__.values())
    if unknown and library.plugin.abi_minor <= ABI_MINOR:
        yield f"capabilities has the bits {unknown:#x}, which device.h does not list. Set only TB_CAP_*."
    missing = [slot for slot in ASYNC_SLOTS if slot not in library.core]
    if flags & Capability.ASYNC and missing:
        yield f"capabilities has TB_CAP_ASYNC, which needs slots that are not set: {', '.join(missing)}."
    elif not flags & Capability.ASYNC and len(missing) < len(ASYNC_SLOTS):
        present = [slot for slot in ASYNC_SLOTS if slot in library.core]
        yield (
            f"{', '.join(present)} are set, but capabilities lacks TB_CAP_ASYNC. Set the flag and all of "
            f"{', '.join(ASYNC_SLOTS)}, or none of them."
        )
