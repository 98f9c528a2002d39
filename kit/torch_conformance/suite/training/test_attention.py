"""Scaled dot product attention inside a backward pass."""

import pytest
import torch
from torch.nn import functional as F
from torch_conformance import needs


@pytest.mark.parametrize("learned", [False, True], ids=["constant-mask", "learned-mask"])
def test_attention_with_a_mask(device: str, learned: bool) -> None:
    """Gradients of attention reach queries, keys, values, and the added mask if and only if it is learned."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 2, 4, 8, generator=generator) for _ in range(3)]
    mask = torch.randn(4, 4, generator=generator)
    results = []
    for where in ("cpu", device):
        leaves = [x.detach().to(where, copy=True).requires_grad_() for x in inputs]
        leaves.append(mask.to(where, copy=True).requires_grad_(learned))
        F.scaled_dot_product_attention(*leaves[:3], attn_mask=leaves[3]).square().sum().backward()
        results.append([None if leaf.grad is None else leaf.grad.cpu() for leaf in leaves])
    assert (results[1][3] is not None) == learned, "the mask's gradient is there if and only if it is learned"
    for name, right, left in zip(("query", "key", "value", "mask"), *results, strict=True):
        torch.testing.assert_close(left, right, msg=lambda text, name=name: f"the gradient of the {name}: {text}")


def test_causal_attention_looks_back_only(device: str) -> None:
    """With is_causal a position's output does not depend on later positions."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 8, generator=generator).to(device) for _ in range(3))
    before = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    k[:, :, 4:], v[:, :, 4:] = 100.0, -100.0
    after = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(after[:, :, :4], before[:, :, :4])
    assert not torch.equal(after[:, :, 4:], before[:, :, 4:])


@pytest.mark.parametrize("kind", ["plain", "causal", "masked"])
@pytest.mark.parametrize("dtype", [pytest.param(d, marks=needs.dtype(d)) for d in ("float16", "bfloat16")])
def test_attention_in_half_precision(device: str, dtype: str, kind: str) -> None:
    """Attention in a short dtype, and its gradients, are what float32 gives, within the dtype's precision."""
    generator = torch.Generator().manual_seed(0)
    short = getattr(torch, dtype)
    inputs = [torch.randn(2, 2, 16, 32, generator=generator).to(short) for _ in range(3)]
    grad, mask = (torch.randn(shape, generator=generator).to(short) for shape in ((2, 2, 16, 32), (16, 16)))
    results = []
    for where, computed in (("cpu", torch.float32), (device, short)):
        leaves = [x.to(where, computed).requires_grad_() for x in inputs]
        added = mask.to(where, computed) if kind == "masked" else None
        result = F.scaled_dot_product_attention(*leaves, attn_mask=added, is_causal=kind == "causal")
        assert result.dtype is computed
        gradients = torch.autograd.grad(result, leaves, grad.to(where, computed))
        results.append([x.detach().float().cpu() for x in (result, *gradients)])
    # Weights, outputs and gradients are each rounded once, and sums of 16 to 32 of them again.
    for name, right, left in zip(("result", "query", "key", "value"), *results, strict=True):
        bound = 8 * torch.finfo(short).eps * float(right.abs().max())
        torch.testing.assert_close(left, right, rtol=0, atol=bound, msg=lambda text, name=name: f"{name}: {text}")
    with torch.no_grad():
        unrecorded = F.scaled_dot_product_attention(*leaves, attn_mask=added, is_causal=kind == "causal")
    torch.testing.assert_close(unrecorded.float().cpu(), results[1][0], rtol=0, atol=bound)
