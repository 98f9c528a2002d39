"""Named ranges and marks, with the names of torch.cuda.nvtx: ``torch.profiler`` shows them beside operators.

Those that are pushed and popped, and marks, reach the vendor's own tools as well, if the device library has a way.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from torch_backend import _C

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_local = threading.local()  # ranges that this thread has pushed
_started: dict[int, Any] = {}
_lock = threading.Lock()


def _open(msg: str) -> Any:
    return torch.ops.profiler._record_function_enter_new(msg, None)


def _close(handle: Any) -> None:
    torch.ops.profiler._record_function_exit._RecordFunction(handle)


def range_push(msg: str) -> int:
    """Begin a range in the calling thread. Returns how many are around it."""
    stack = _local.__dict__.setdefault("ranges", [])
    stack.append(_open(msg))
    _C.range_push(msg)
    return len(stack) - 1


def range_pop() -> int:
    """End the calling thread's innermost range. Returns how many are around it; negative if there was none."""
    stack = _local.__dict__.get("ranges", [])
    if not stack:
        return -1
    _C.range_pop()
    _close(stack.pop())
    return len(stack)


def range_start(msg: str) -> int:
    """Begin a range that :func:`range_end` ends with what this returns, in any order."""
    handle = _open(msg)
    with _lock:
        number = max(_started, default=0) + 1
        _started[number] = handle
    return number


def range_end(range_id: int) -> None:
    """End a range that :func:`range_start` has begun. Raises KeyError if there is none."""
    with _lock:
        handle = _started.pop(range_id)
    _close(handle)


def mark(msg: str) -> None:
    """A moment: a range without length."""
    range_push(msg)
    range_pop()


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Inside is a range called ``msg.format(*args, **kwargs)``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
