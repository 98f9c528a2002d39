"""One function of each of CUDA's libraries, with inputs."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from _numbers import drawn

Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def gradients_of_attention(*leaves: torch.Tensor) -> torch.Tensor:
    """Of the keys."""
    [x.requires_grad_() for x in leaves]
    y = F.scaled_dot_product_attention(*leaves, is_causal=True)
    return torch.autograd.grad(y, leaves, y.detach())[1]


def case(name: str) -> Case:
    """A function, and new inputs for it."""
    torch.backends.cudnn.allow_tf32 = False
    heads = tuple(drawn(2, 3, 8, 16, dtype=torch.float16) for _ in range(3))
    return {
        "products": (torch.mm, (drawn(20, 96), drawn(96, 30))),
        "convolutions": (F.conv2d, (drawn(2, 3, 8, 8), drawn(4, 3, 3, 3))),
        "attention": (F.scaled_dot_product_attention, heads),
        "gradients": (gradients_of_attention, heads),
    }[name]
