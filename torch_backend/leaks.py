"""Device memory that outlives the code that allocated it, for tests of programs and of operators."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torch_backend import _C
from torch_backend.device_module import memory as device_memory
from torch_backend.device_module._utils import _device_type
from torch_backend.device_module.devices import synchronize

_SHOWN_FRAMES = 6
_SHOWN_STACKS = 10


@dataclass(frozen=True)
class Leak:
    """One allocation that was made inside :func:`check_leaks` and is still in use.

    Attributes:
        device: index of its device.
        address: where it lies.
        size_bytes: as asked for.
        frames: where it was made, innermost first: "file.py:12 in function". Empty if no stacks were recorded.
        tensors: Python's tensors that use it, described. Empty if only C++, or an autograd graph, holds it.
    """

    device: int
    address: int
    size_bytes: int
    frames: tuple[str, ...]
    tensors: tuple[str, ...]


class LeakError(AssertionError):
    """Device memory stayed in use. ``leaks`` are the allocations."""

    def __init__(self, leaks: list[Leak]) -> None:
        """The message groups the allocations by where they were made."""
        super().__init__(_describe(leaks))
        self.leaks = leaks


@contextlib.contextmanager
def check_leaks(allowed_bytes: int = 0) -> Iterator[None]:
    """Context manager: raise :class:`LeakError` if device memory that is allocated inside is still in use at the end.

    Tensors that are meant to stay (gradients, optimizer state, caches) must exist before: run the code once to warm up,
    or give their size as ``allowed_bytes``. Counted is what any thread of the process allocates on any device. At both
    ends garbage is collected and the devices are waited for. If the body raises, nothing is checked.

    While it runs it records the allocator's history with Python's stacks, as ``torch.<name>.memory`` does with
    ``_record_memory_history``. A history that is recorded already is used, goes on, and must keep all entries.
    """
    was_recording = _C.is_memory_history_enabled()
    if not was_recording:
        device_memory._record_memory_history("all", context="alloc", stacks="python")
    try:
        _settle()
        # The snapshot's own entry included.
        starts = [len(trace) for trace in device_memory._snapshot()["device_traces"]]
        yield
        _settle()
        snapshot = device_memory._snapshot()
    finally:
        if not was_recording:
            device_memory._record_memory_history(None)
    leaks = _find(snapshot["device_traces"], starts)
    if sum(leak.size_bytes for leak in leaks) > allowed_bytes:
        raise LeakError(leaks)


def _settle() -> None:
    gc.collect()
    for device in range(_C.device_count()):
        synchronize(device)


def _find(traces: list[list[dict[str, Any]]], starts: list[int]) -> list[Leak]:
    alive: dict[tuple[int, int], dict[str, Any]] = {}
    for device, (trace, start) in enumerate(zip(traces, starts, strict=True)):
        for entry in trace[start:]:
            if entry["action"] == "alloc":
                alive[device, entry["addr"]] = entry
            elif entry["action"] in {"free", "free_requested"}:
                alive.pop((device, entry["addr"]), None)
    tensors = _tensors_at(alive)
    return [
        Leak(
            device,
            address,
            entry["size"],
            _stack(entry["frames"]),
            tuple(tensors.get((device, address), ())),
        )
        for (device, address), entry in alive.items()
    ]


def _stack(frames: list[dict[str, Any]]) -> tuple[str, ...]:
    """Python's frames, or all if there are only others: a history with ``stacks="all"`` starts with the allocator's."""
    python = [frame for frame in frames if frame["filename"].endswith(".py") or frame["filename"].startswith("<")]
    return tuple(f"{frame['filename']}:{frame['line']} in {frame['name']}" for frame in python or frames)


def _tensors_at(blocks: dict[tuple[int, int], dict[str, Any]]) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {}
    name = _device_type()
    for thing in gc.get_objects():
        with contextlib.suppress(Exception):  # an object may refuse to be looked at
            if issubclass(type(thing), torch.Tensor) and thing.device.type == name:
                key = (thing.device.index, thing.untyped_storage().data_ptr())
                if key in blocks:
                    shape = "x".join(map(str, thing.shape)) or "scalar"
                    found.setdefault(key, []).append(f"{type(thing).__name__} {shape} {thing.dtype}")
    return found


def _describe(leaks: list[Leak]) -> str:
    total = sum(leak.size_bytes for leak in leaks)
    name = _device_type()
    lines = [
        f"{_count(leaks)} made inside check_leaks {'is' if len(leaks) == 1 else 'are'} still in use, {total} bytes:"
    ]
    groups: dict[tuple[int, tuple[str, ...]], list[Leak]] = {}
    for leak in leaks:
        groups.setdefault((leak.device, leak.frames), []).append(leak)
    ordered = sorted(groups.items(), key=lambda item: -sum(leak.size_bytes for leak in item[1]))
    for (device, frames), members in ordered[:_SHOWN_STACKS]:
        held = Counter(text for leak in members for text in leak.tensors)
        holders = ", ".join(text if count == 1 else f"{count} of {text}" for text, count in held.items())
        lines.append(
            f"  {sum(leak.size_bytes for leak in members)} bytes on {name}:{device} in {_count(members)}, "
            f"{'of ' + holders if holders else 'of no tensor that Python holds'}, made at"
        )
        lines += [f"    {frame}" for frame in frames[:_SHOWN_FRAMES]] or ["    (no stack was recorded)"]
    if len(ordered) > _SHOWN_STACKS:
        lines.append(f"  and at {len(ordered) - _SHOWN_STACKS} more places")
    return "\n".join(lines)


def _count(leaks: list[Leak]) -> str:
    return f"{len(leaks)} allocation{'' if len(leaks) == 1 else 's'}"
