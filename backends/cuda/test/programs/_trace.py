"""What the profiler has of the device."""

import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def trace(work: Callable[[], object]) -> list[dict[str, Any]]:
    """The events of some work."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        work()
        torch.xcuda.synchronize(0), torch.xcuda.synchronize(1)
    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(path := os.path.join(folder, "trace.json"))
        with open(path) as file:
            return json.load(file)["traceEvents"]


def of(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """Those of some kinds; of the device's unless others are named."""
    return [event for event in events if event.get("cat") in (kinds or ("kernel", "gpu_memcpy", "gpu_memset"))]


def measured(events: list[dict[str, Any]]) -> list[str]:
    """What has told the times of the device's work."""
    return sorted({event["args"]["measured by"] for event in of(events)})
