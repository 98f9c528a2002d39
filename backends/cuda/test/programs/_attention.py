"""Attention and its gradients, compared with the CPU's."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from _numbers import close, drawn, upload

draw = partial(drawn, dtype=torch.float16)


def compare(*inputs: torch.Tensor, attn_mask: torch.Tensor | None = None, **options: Any) -> None:
    """Queries, keys and values, as they lie."""
    wide = None if attn_mask is None else attn_mask.double() if attn_mask.is_floating_point() else attn_mask
    results = []
    for on in ("xcuda", "cpu"):
        leaves = [upload(x) if on == "xcuda" else x.double() for x in inputs]
        options["attn_mask"] = attn_mask.to("xcuda") if attn_mask is not None and on == "xcuda" else wide
        results.append([F.scaled_dot_product_attention(*leaves, **options)])
        if torch.is_grad_enabled() and "enable_gqa" not in options:
            leaves = [x.requires_grad_() for x in leaves]
            y = F.scaled_dot_product_attention(*leaves, **options)
            results[-1] += [y.detach(), *torch.autograd.grad(y, leaves, y.detach())]
    for i, (got, wanted) in enumerate(zip(*results, strict=True)):
        close(got, wanted, scale=5 if i > 1 else 1)  # gradients begin with the rounded result
