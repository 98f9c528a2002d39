"""What the code that inductor writes for the device imports."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from torch_backend import _C


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="torch_backend_compile")


def kernel(device: int, name: str, texts: str, body: str, **options: Any) -> _C.GraphKernel:
    """A kernel that is being compiled for ``device``; a call waits for that, and raises what the compiler says."""
    made = _C.GraphKernel(name, texts, body, **options)
    _workers().submit(made.compile, device)
    return made


class Guard:
    """A context in which the device number ``index`` is current; torch.<name>.device looks at its argument first."""

    __slots__ = ("_before", "_index")

    def __init__(self, index: int) -> None:
        """Nothing changes yet."""
        self._index = index

    def __enter__(self) -> None:
        """Make the device current."""
        self._before = _C.exchange_device(self._index)

    def __exit__(self, *exception: object) -> None:
        """Make the device before current again."""
        _C.maybe_exchange_device(self._before)
