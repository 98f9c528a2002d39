"""Device memory: what is used, by what, and how much may be; private pools; pinned host memory.

Names, arguments and results are those of torch.cuda.memory. Sizes are in bytes. ``device`` is an index, a string, a
torch.device, or None for the current device. All functions may be called from any thread. Statistics never start the
driver: before its first use a device has none.
"""

import contextlib
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch.types import Device

from torch_backend import _C
from torch_backend.device_module._utils import _device_type, _existing_device_index
from torch_backend.device_module.devices import _lazy_init, is_initialized

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


# ---- statistics ----


def memory_stats(device: Device = None) -> "OrderedDict[str, Any]":
    """Statistics of the caching allocator, flat and sorted; the keys are those of :func:`torch.cuda.memory_stats`.

    Core statistics are ``"<name>.<pool>.<metric>"``, with the metrics ``current``, ``peak``, ``allocated`` and
    ``freed`` (sums since the last reset), and the pools ``all``, ``small_pool`` (requests up to 1 MiB) and
    ``large_pool``:

    - ``allocation``, ``allocated_bytes``: memory in use; ``requested_bytes``: the same before rounding.
    - ``segment``, ``reserved_bytes``: memory held from the device, in use or cached.
    - ``active``, ``active_bytes``: in use, or freed while another stream still uses it.
    - ``inactive_split``, ``inactive_split_bytes``: cached parts of segments that are in use elsewhere, which
      :func:`empty_cache` cannot give back.

    Besides: ``num_alloc_retries`` (requests the device refused until the cache was emptied), ``num_ooms``,
    ``num_sync_all_streams``, ``num_device_alloc`` and ``num_device_free`` (calls to the device),
    ``oversize_allocations.<metric>`` and ``oversize_segments.<metric>`` (blocks of ``max_split_size`` and more), and
    ``reserved_bytes_by_private_pools.<id>.<pool>.<metric>`` (torch 2.11 does not count these).
    """
    return _flatten(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The result of :func:`memory_stats`, nested; empty if the driver was not started."""
    if not is_initialized():
        return {}
    return _C.memory_stats(_existing_device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set ``allocated``, ``freed`` and the event counts of :func:`memory_stats` to 0."""
    _C.reset_accumulated_memory_stats(_existing_device_index(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Set every ``peak`` of :func:`memory_stats` to the current value."""
    _C.reset_peak_memory_stats(_existing_device_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """The same as :func:`reset_peak_memory_stats`: peaks are reset together."""
    reset_peak_memory_stats(device)


def memory_allocated(device: Device = None) -> int:
    """Bytes in use by tensors."""
    return _stat(device, "allocated_bytes", "current")


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that were in use by tensors since the last :func:`reset_peak_memory_stats`."""
    return _stat(device, "allocated_bytes", "peak")


def memory_reserved(device: Device = None) -> int:
    """Bytes held from the device: in use or cached."""
    return _stat(device, "reserved_bytes", "current")


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that were held from the device since the last :func:`reset_peak_memory_stats`."""
    return _stat(device, "reserved_bytes", "peak")


def memory_cached(device: Device = None) -> int:
    """The old name of :func:`memory_reserved`."""
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """The old name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """The same as :func:`reset_peak_memory_stats`: peaks are reset together."""
    reset_peak_memory_stats(device)


def _stat(device: Device, name: str, metric: str) -> int:
    stats = memory_stats_as_nested_dict(device)
    return int(stats[name]["all"][metric]) if stats else 0


def _flatten(nested: dict[str, Any]) -> "OrderedDict[str, Any]":
    flat: list[tuple[str, Any]] = []

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else str(key)
                visit(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat.append((prefix, value))

    visit("", nested)
    return OrderedDict(sorted(flat))


# ---- what there is, what may be used ----


def empty_cache() -> None:
    """Give cached memory that is not in use back to the device, on all devices. Waits for pending work.

    That does not make more memory available to this process, whose cache is emptied before it runs out of memory; it is
    for other processes on the same device.
    """
    if is_initialized():
        _C.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the device, as its driver sees them.

    Raises NotImplementedError, a RuntimeError, if the device does not say how much memory it has.
    """
    _lazy_init()
    return _C.mem_get_info(_existing_device_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process hold no more than ``fraction`` (0 to 1) of the device's total memory.

    A request beyond raises torch.OutOfMemoryError. 1.0 lifts the limit.

    Raises TypeError if ``fraction`` is no float, ValueError if it is out of range, and NotImplementedError if the
    device does not say how much memory it has.
    """
    _lazy_init()
    if not isinstance(fraction, float):
        raise TypeError(f"The memory fraction must be a float, got {fraction!r}.")
    _C.set_memory_fraction(fraction, _existing_device_index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """What :func:`set_per_process_memory_fraction` has set; 1.0 if nothing."""
    return _C.get_memory_fraction(_existing_device_index(device))


def get_allocator_backend() -> str:
    """The name of the allocator: always ``"torch_backend"``."""
    return "torch_backend"


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | int | None = None) -> int:
    """Allocate ``size`` bytes for use outside of tensors; the address.

    Args:
        stream: a stream of the device, or its stream_id, on which the memory is used; None means the current stream.

    The memory stays allocated until :func:`caching_allocator_delete`. Raises torch.OutOfMemoryError.
    """
    _lazy_init()
    index = _existing_device_index(device)
    if stream is None:
        stream = torch.accelerator.current_stream(index)
    stream_id = stream if isinstance(stream, int) else stream.stream_id
    return _C.allocate_raw(size, index, stream_id)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what :func:`caching_allocator_alloc` returned."""
    _C.free_raw(mem_ptr)


# ---- other processes ----


def ipc_collect() -> None:
    """Let memory be used again that was freed after it was sent to other processes, and that those have released.

    It also happens by itself, before the device is asked for more memory. Never waits. There is nothing to collect on
    a device whose memory processes do not share.
    """
    _C.ipc_collect()


# ---- a readable summary ----

_SUMMARY_ROWS = (
    ("allocated_bytes", "Allocated memory", True),
    ("active_bytes", "Active memory", True),
    ("requested_bytes", "Requested memory", True),
    ("reserved_bytes", "Reserved memory", True),
    ("inactive_split_bytes", "Non-releasable memory", True),
    ("allocation", "Allocations", False),
    ("active", "Active allocations", False),
    ("segment", "Reserved segments", False),
    ("inactive_split", "Non-releasable blocks", False),
)
_SUMMARY_METRICS = ("current", "peak", "allocated", "freed")


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of :func:`memory_stats` as a table for people; ``abbreviated`` leaves out the two pools."""
    index = _existing_device_index(device)
    stats = memory_stats_as_nested_dict(index)
    where = f"{_device_type()}:{index}"
    if not stats:
        return f"{where}: the driver was not started, so no memory is in use.\n"
    header = ("", "current", "peak", "allocated", "freed")
    rows: list[tuple[str, ...] | None] = [header, None]
    for key, title, is_bytes in _SUMMARY_ROWS:
        rows.append(_summary_row(title, stats[key]["all"], is_bytes))
        if not abbreviated:
            rows += [
                _summary_row(f"  {pool} pool", stats[key][f"{pool}_pool"], is_bytes) for pool in ("small", "large")
            ]
    rows.append(None)
    rows += [
        _summary_row("Oversize allocations", stats["oversize_allocations"], False),
        _summary_row("Oversize segments", stats["oversize_segments"], False),
    ]
    try:
        free, total = (_format_bytes(size) for size in mem_get_info(index))
        on_device = f"{free} of {total} free on the device"
    except NotImplementedError:
        on_device = "The device does not say how much memory it has"
    lines = [
        f"Memory of {where} ({_C.device_properties(index).name or _device_type()})",
        on_device,
        f"{stats['num_ooms']} out-of-memory errors, {stats['num_alloc_retries']} requests that emptied the cache, "
        f"{stats['num_device_alloc']} allocations by the device, {stats['num_device_free']} frees",
        "",
        *_table(rows),
    ]
    return "\n".join(lines) + "\n"


def _summary_row(title: str, stat: dict[str, int], is_bytes: bool) -> tuple[str, ...]:
    return (title, *((_format_bytes if is_bytes else str)(stat[metric]) for metric in _SUMMARY_METRICS))


def _table(rows: list[tuple[str, ...] | None]) -> list[str]:
    """Columns of the same width; None is a rule."""
    cells = [row for row in rows if row is not None]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    rule = "-+-".join("-" * width for width in widths)
    return [
        rule if row is None else " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]


def _format_bytes(size: int) -> str:
    if abs(size) < 1024:
        return f"{size} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((abs(size).bit_length() - 1) // 10, len(units))
    return f"{size / 1024**power:.1f} {units[power - 1]}"


# ---- snapshots and history ----


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments held from all devices and the blocks in them, or those of one private pool.

    See :func:`_snapshot` for the format.
    """
    if not is_initialized():
        return []
    segments: list[dict[str, Any]] = _C.memory_snapshot(mempool_id, include_traces)["segments"]
    return segments


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The state of the allocators of all devices, in the format of :func:`torch.cuda.memory._snapshot`.

    ``{"segments": [...], "device_traces": [[...] per device], "allocator_settings": {...}}``, which
    https://pytorch.org/memory_viz and ``python -m torch.cuda._memory_viz`` show. Stacks and traces are in it if
    :func:`_record_memory_history` was called before.

    Args:
        device: ignored, as by torch.cuda.
        augment_with_fx_traces: add to the frames of FX-generated code where the original model's code is.
    """
    snapshot = _C.memory_snapshot()
    if augment_with_fx_traces:
        from torch import _utils

        return _utils._augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type, return-value]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write :func:`_snapshot` to a file that https://pytorch.org/memory_viz opens."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Record where memory is allocated, on all devices, for :func:`_snapshot`.

    Args:
        enabled: None stops and forgets what was recorded; ``"state"`` records for memory in use; ``"all"`` also keeps a
            history of what the allocator did.
        context: which stacks to gather: none, of memory in use, also of allocations in the history, also of frees.
        stacks: ``"python"`` for Python and TorchScript frames, ``"all"`` for C++ frames too, which take longer to show.
        max_entries: the history keeps this many of the newest entries; one takes some hundred bytes to some KiB.
        device: ignored, as by torch.cuda.
        clear_history: forget what was recorded before.
        compile_context, global_record_annotations: accepted for compatibility; nothing is recorded for them.
        skip_actions: entries that the history leaves out, e.g. ``["free_requested"]``.

    Raises ValueError for an argument that is not one of those named.
    """
    _C.record_memory_history(enabled, context, stacks, max_entries, clear_history, skip_actions or [])


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Call ``observer(device, requested_bytes, total_bytes, free_bytes)`` before each torch.OutOfMemoryError.

    What the device does not say is 0. It stays attached until the process ends, and may be called from any thread.
    """
    _C.attach_out_of_memory_observer(observer)


# ---- private pools ----


class MemPool(_C.MemoryPool):
    """Memory of the current device that only allocations inside :func:`use_mem_pool` get.

    The pool goes when the object does; memory that is still in use then is given back later.

    Args:
        allocator, use_on_oom, no_split: torch.cuda's. Anything but the defaults raises NotImplementedError: the device
            library allocates, and what is in a pool stays there.
    """

    def __init__(self, allocator: object = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        """Starts the driver."""
        if allocator is not None or use_on_oom or no_split:
            raise NotImplementedError(
                f"A MemPool of {_device_type()} has no allocator of its own, does not serve others that run out of "
                "memory, and splits its segments: leave out allocator, use_on_oom and no_split."
            )
        _lazy_init()
        super().__init__(_C.current_device())

    @property
    def id(self) -> tuple[int, int]:
        """What names the pool in snapshots and statistics."""
        return super().id

    def use_count(self) -> int:
        """How many hold the pool: this object, and each :func:`use_mem_pool` that is entered."""
        return super().use_count()

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments; see :func:`memory_snapshot`."""
        return memory_snapshot(self.id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Inside, what the calling thread allocates on ``device`` (None: the current one) comes from ``pool``.

    Threads that are started inside, and autograd's threads, are not affected.
    """
    index = _existing_device_index(device)
    _C.begin_allocate_to_pool(index, pool.id)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(index, pool.id)


# ---- pinned host memory ----


def host_memory_stats() -> "OrderedDict[str, Any]":
    """Statistics of the pinned host memory allocator, flat and sorted, with the keys of torch.cuda.host_memory_stats.

    ``allocations`` and ``allocated_bytes`` count what is held, ``active_requests`` and ``active_bytes`` what is in use,
    each with ``current``, ``peak``, ``allocated`` and ``freed``. ``host_alloc_time`` and ``host_free_time`` are in
    microseconds. Sizes are rounded up to powers of two; peaks are sums over sizes and may be too high.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The result of :func:`host_memory_stats`, nested; empty if the driver was not started."""
    return _C.host_memory_stats() if is_initialized() else {}


def reset_accumulated_host_memory_stats() -> None:
    """Set ``allocated`` and ``freed`` of :func:`host_memory_stats` to 0."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Set every ``peak`` of :func:`host_memory_stats` to the current value."""
    _C.reset_peak_host_memory_stats()


def empty_host_cache() -> None:
    """Give cached pinned memory that is not in use back to the system."""
    _C.empty_host_cache()
