"""Large copies into, out of and within the device, against memcpy."""

import ctypes
from functools import partial

import torch

from benchmarks.result import Row, rate_row
from benchmarks.timer import Work, compare

SIZE_BYTES = 64 << 20


def run(device: torch.device) -> list[Row]:
    """Gigabytes per second, both sides writing to memory that was touched before."""
    host, pinned = torch.ones(SIZE_BYTES, dtype=torch.uint8), torch.ones(SIZE_BYTES, dtype=torch.uint8).pin_memory()
    there, other = (torch.ones(SIZE_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    copies: dict[str, Work] = {
        "host to device": partial(there.copy_, host),
        "pinned host to device": partial(there.copy_, pinned),
        "device to host": partial(host.copy_, there),
        "device to device": partial(other.copy_, there),
    }
    memcpy = _memcpy()
    return [rate_row(name, compare(copy, memcpy, rounds=25, round_s=0.02), SIZE_BYTES) for name, copy in copies.items()]


def _memcpy() -> Work:
    source, target = torch.ones(SIZE_BYTES, dtype=torch.uint8), torch.ones(SIZE_BYTES, dtype=torch.uint8)

    def copy() -> None:
        ctypes.memmove(target.data_ptr(), source.data_ptr(), SIZE_BYTES)

    return copy
