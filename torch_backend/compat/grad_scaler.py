"""``torch.amp.GradScaler``: without a device it is for the active one, where there is no CUDA.

PyTorch's default is "cuda": a scaler for it turns itself off with a warning, and float16 gradients underflow. All
versions up to 2.15. May go once the default is PyTorch's accelerator.
"""

import functools
from typing import Any


def choose(name: str) -> None:
    """Let ``GradScaler()`` be for the device ``name``, if CUDA cannot be meant."""
    import torch

    original: Any = torch.amp.GradScaler.__init__

    @functools.wraps(original)
    def __init__(self: Any, device: str | None = None, *arguments: Any, **keywords: Any) -> None:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else name
        original(self, device, *arguments, **keywords)

    torch.amp.GradScaler.__init__ = __init__  # type: ignore[method-assign]
