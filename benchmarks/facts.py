"""What the figures depend on besides the code."""

import os
import platform
from pathlib import Path

import torch

import torch_backend


def facts(device: torch.device) -> dict[str, str]:
    """Machine, versions and threads, as text."""
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return {
        "processor": f"{_processor()}, {cores} of {os.cpu_count()} cores usable, load {load:.1f}",
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} thread(s)",
        "torch_backend": torch_backend.__version__,
        "device": str(device),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
