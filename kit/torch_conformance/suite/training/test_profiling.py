"""What torch.profiler shows of the device."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch_conformance import needs
from torch_conformance.features import activity_of

pytestmark = needs.feature("profiler")

_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
_MOST_SKEW_US = 20_000.0  # between the device's clock and the host's


def _profile(work: Any, backend: ModuleType, device: str, path: Path) -> tuple[profile, list[dict[str, Any]]]:
    with profile(activities=[ProfilerActivity.CPU, activity_of(device)]) as prof:
        work()
        backend.synchronize()
    prof.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return prof, events


@needs.feature("torch_backend")
def test_copies_are_shown(device: str, backend: ModuleType, tmp_path: Path) -> None:
    """The profiler shows a copy to the device and one back, with their bytes."""
    host = torch.arange(5000, dtype=torch.float32)
    torch.empty(1, device=device)
    _, events = _profile(lambda: host.to(device).cpu(), backend, device, tmp_path / "trace.json")
    copies = {
        event["name"].split(" (")[0]: event["args"]["bytes"] for event in events if event.get("cat") == "gpu_memcpy"
    }
    expected = {"Memcpy HtoD": host.nbytes, "Memcpy DtoH": host.nbytes}
    assert copies == expected, f"a copy of {host.nbytes} bytes to the device and back is shown as {copies}"


def test_a_step_is_shown(device: str, backend: ModuleType, tmp_path: Path) -> None:
    """The profiler shows a training step's work on the device, joined with operators, at times within the step."""
    model = nn.Linear(32, 32).to(device)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).to(device)

    def step() -> None:
        model(x).sum().backward()

    step()
    prof, events = _profile(step, backend, device, tmp_path / "trace.json")
    work = [event for event in events if event.get("cat") in _WORK]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    assert work, "the profiler shows nothing that the device has done in a training step"
    known = {event["args"].get("External id") for event in operators}
    lost = [event["name"] for event in work if event["args"].get("External id") not in known]
    assert not lost, f"work of the device belongs to no operator: {lost}"
    start = min(event["ts"] for event in operators) - _MOST_SKEW_US
    end = max(event["ts"] + event["dur"] for event in events if event.get("name") == "PyTorch Profiler (0)")
    for event in work:
        assert event["dur"] >= 0, f"{event['name']} took {event['dur']} us"
        assert start <= event["ts"] <= end + _MOST_SKEW_US - event["dur"], (
            f"{event['name']} is shown from {event['ts']} to {event['ts'] + event['dur']} us, "
            f"but the profile runs from {start + _MOST_SKEW_US} to {end} us"
        )
    total = sum(event.self_device_time_total for event in prof.key_averages())
    assert total > 0, "key_averages() has no time of the device"
