"""Telling a profiler when to look, with the names of torch.cuda.profiler.

A vendor's profiler outside of PyTorch is not told: the device library has no call for that. ``torch.profiler`` shows
two marks.
"""

import contextlib
from collections.abc import Iterator

import torch  # noqa: F401  # before anything else

from torch_backend.device_module import nvtx

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Mark the beginning."""
    nvtx.mark("profiler.start")


def stop() -> None:
    """Mark the end."""
    nvtx.mark("profiler.stop")


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """:func:`start`, and :func:`stop` at the end."""
    start()
    try:
        yield
    finally:
        stop()
