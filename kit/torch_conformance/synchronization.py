"""Waiting for a device, whichever way it has."""

from functools import cache
from typing import Any


def synchronize(device: str, index: int | None = None) -> None:
    """Wait until all work of a device is done that was given to it; errors that it has found may come up here.

    ``device`` may have an index. A device that nobody can wait for is done when its calls return.
    """
    import torch  # which takes seconds, and processes that only time and report import this

    where = torch.device(device)
    index = where.index if index is None else index
    module: Any = getattr(torch, where.type, None)
    if not hasattr(module, "synchronize"):
        if can_wait(where.type):
            torch.accelerator.synchronize(index)
    elif index is not None and module.device_count() > 1:
        module.synchronize(index)
    else:
        module.synchronize()  # mps takes no index


@cache
def can_wait(name: str) -> bool:
    """Whether torch.accelerator waits for a device whose module does not.

    First called while the device has no work, whose errors might come up.
    """
    import torch

    if not torch.accelerator.is_available() or torch.accelerator.current_accelerator() != torch.device(name):
        return False
    try:
        torch.accelerator.synchronize()
    except RuntimeError:  # it is one of the hooks that a device need not have
        return False
    return True
