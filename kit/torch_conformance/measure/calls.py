"""What the host pays for a call: tensors so small that the device has next to nothing to do."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F

from torch_conformance.measure.timing import Work

PARAMETERS = 100


def works(device: str, _: float) -> Iterator[tuple[str, int, Work]]:
    """Name, bytes, which are 0, and one call."""
    x, y = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
    out, host = torch.empty_like(x), torch.ones(4, 4)
    weight = torch.ones(4, 4, device=device, requires_grad=True)

    def backward() -> None:
        weight.grad = None
        torch.autograd.backward((weight * 2).sum())

    yield "add", 0, lambda: x + y
    yield "add, out=", 0, lambda: torch.add(x, y, out=out)
    yield "mul_", 0, lambda: out.mul_(1)
    yield "view", 0, lambda: x.view(16)
    yield "mm", 0, lambda: x @ y
    yield "softmax", 0, lambda: x.softmax(-1)
    yield "sum", 0, lambda: x.sum()
    yield "layer_norm", 0, lambda: F.layer_norm(x, (4,))
    yield "empty", 0, lambda: torch.empty(4, 4, device=device)
    yield "forward and backward", 0, backward
    yield "item", 0, lambda: x[0, 0].item()
    yield "copy to the device", 0, lambda: host.to(device)
    kinds: dict[str, dict[str, Any]] = {
        "AdamW, one by one": {"foreach": False},
        "AdamW, foreach": {"foreach": True},
        "AdamW, fused": {"fused": True},
    }
    for name, options in kinds.items():
        parameters = [torch.ones(64, device=device, requires_grad=True) for _ in range(PARAMETERS)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        try:
            step = torch.optim.AdamW(parameters, **options).step
        except RuntimeError:  # not every device has them all
            continue
        yield f"{name}, {PARAMETERS} parameters", 0, step
