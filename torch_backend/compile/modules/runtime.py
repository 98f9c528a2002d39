"""What the code that inductor writes for the device imports."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from torch_backend import _C

__all__ = ["kernel"]


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="torch_backend_compile")


def kernel(device: int, name: str, texts: str, body: str, **options: Any) -> _C.GraphKernel:
    """A kernel that is being compiled for ``device``; a call waits for that, and raises what the compiler says."""
    made = _C.GraphKernel(name, texts, body, **options)
    _workers().submit(made.compile, device)
    return made
