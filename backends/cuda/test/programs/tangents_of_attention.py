"""Forward-mode gradients, which no tensor requires beforehand."""

import torch
import torch.nn.functional as F
from _attention import draw
from _numbers import close

inputs = [draw(2, 3, 5, 16) for _ in range(4)]


def tangents(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    return torch.func.jvp(lambda q: F.scaled_dot_product_attention(q, k, v), (q,), (tangent,))[1]


there = tangents(*(x.to("xcuda") for x in inputs))
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the CPU's other ones have no tangents
    close(there, tangents(*(x.double() for x in inputs)), scale=1)
