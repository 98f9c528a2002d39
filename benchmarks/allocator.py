"""An allocation that the caching allocator serves from its cache, against the host's malloc."""

from functools import partial

import torch

from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare

SIZES = {"empty 4 KiB": 4 << 10, "empty 1 MiB": 1 << 20, "empty 32 MiB": 32 << 20}


def run(device: torch.device) -> list[Row]:
    """Nanoseconds of torch.empty and of freeing what it returns."""

    def empty(size_bytes: int, where: str | torch.device) -> Work:
        return partial(torch.empty, (size_bytes,), dtype=torch.uint8, device=where)

    return [time_row(name, compare(empty(size, device), empty(size, "cpu")), "ns") for name, size in SIZES.items()]
