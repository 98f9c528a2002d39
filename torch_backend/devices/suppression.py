"""Keeping ``import torch`` from activating a device in the calling thread."""

import contextlib
import threading
from collections.abc import Iterator

_state = threading.local()


@contextlib.contextmanager
def suppressed() -> Iterator[None]:
    """Within, ``import torch`` activates nothing: the caller is about to activate what the user asked for."""
    _state.depth = getattr(_state, "depth", 0) + 1
    try:
        yield
    finally:
        _state.depth -= 1


def is_suppressed() -> bool:
    """Whether the calling thread is within :func:`suppressed`."""
    return getattr(_state, "depth", 0) > 0
