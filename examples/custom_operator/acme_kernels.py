"""Kernels of the operators in ops.yaml. A real device would launch its own code here."""

from typing import Any

import torch


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotary_backward(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn them back: the transpose of a rotation is its inverse."""
    return rotary(grad, cos, -sin)


def fast_gelu(x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """One sigmoid, whichever approximation the model asks for."""
    return x * torch.sigmoid(1.702 * x)


def fast_gelu_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """The derivative of the approximation, so that gradients fit the forward."""
    (x,) = ctx.saved_tensors
    gate = torch.sigmoid(1.702 * x)
    return grad * gate * (1 + 1.702 * x * (1 - gate))
