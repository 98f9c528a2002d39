"""What torch_backend tells about a run: which kernels it used, and its memory over time."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import data
import torch
from training import Settings, train

from torch_backend import operators


@dataclass(frozen=True)
class Inspection:
    """One epoch, watched. ``memory`` lists milliseconds since the start and the bytes allocated from then on."""

    calls: operators.CallCounts
    memory: list[tuple[float, int]]
    peak_bytes: int


def inspect(digits: data.Digits, device: torch.device, settings: Settings) -> Inspection:
    """Train one epoch with operator calls counted and the memory history recorded, which takes longer than usual."""
    backend: ModuleType = getattr(torch, device.type)
    one_epoch = Settings(epochs=1, batch_size=settings.batch_size, seed=settings.seed)
    before = backend.memory_allocated(device)
    backend.reset_peak_memory_stats(device)
    backend.memory._record_memory_history(context=None, stacks="python")
    try:
        with operators.count_calls() as calls:
            train(digits, device, one_epoch)
        trace = backend.memory._snapshot()["device_traces"][device.index or 0]
    finally:
        backend.memory._record_memory_history(None)
    return Inspection(calls, _timeline(trace, before), backend.max_memory_allocated(device))


def _timeline(trace: list[dict[str, Any]], allocated: int) -> list[tuple[float, int]]:
    effects = {"alloc": 1, "free_completed": -1}
    points = []
    for entry in trace:
        if entry["action"] in effects:
            allocated += effects[entry["action"]] * entry["size"]
            points.append(((entry["time_us"] - trace[0]["time_us"]) / 1000, allocated))
    return points
