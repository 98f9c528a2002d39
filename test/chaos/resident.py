"""How much memory the process holds, and whether that grows."""

import os
from collections.abc import Sequence
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Of the calling process, shared pages included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def growth_per_step(samples: Sequence[tuple[int, int]]) -> float:
    """Bytes per step: the slope (least squares) of the later half of (step, bytes), when caches are full."""
    later = samples[len(samples) // 2 :]
    mean_x = sum(x for x, _ in later) / len(later)
    mean_y = sum(y for _, y in later) / len(later)
    spread = sum((x - mean_x) ** 2 for x, _ in later)
    return sum((x - mean_x) * (y - mean_y) for x, y in later) / spread if spread else 0.0
