"""Convolutions and their gradients, compared with the CPU's."""

from collections.abc import Callable
from typing import Any

import torch
from _numbers import close

torch.backends.cudnn.allow_tf32 = False


def compare(function: Callable[..., torch.Tensor], *tensors: torch.Tensor | None, **numbers: Any) -> torch.Tensor:
    """Input, weight and bias; the device's result."""
    results = []
    for on in ("xcuda", "cpu"):
        here = [x if x is None else x.to(on, x.dtype if on == "xcuda" else torch.float64) for x in tensors]
        leaves = [x.requires_grad_() for x in here if x is not None]
        y = function(*here, **numbers)
        seed = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype)
        if not y.is_contiguous():
            seed = seed.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[y.dim()])
        results.append([y, *torch.autograd.grad(y, leaves, seed.to(on))])
    for got, wanted in zip(*results, strict=True):
        close(got.detach(), wanted.detach(), scale=30)
    return results[0][0]
