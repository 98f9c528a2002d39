"""The meta kernel of the gradient of fused attention: what is traced knows the gradients' shapes.

Torch 2.11 has one for the forward pass alone: DTensor and the compiler, which run the gradient's, come to PyTorch's
text that says to write a kernel. May go with torch 2.11.
"""

from typing import Any

_OP = "aten::_scaled_dot_product_fused_attention_overrideable_backward"


def register() -> None:
    """Add it where PyTorch has none."""
    import torch

    if not torch._C._dispatch_has_kernel_for_dispatch_key(_OP, "Meta"):
        torch.library.impl(_OP, "Meta")(_gradients)


def _gradients(
    grad_out: Any, query: Any, key: Any, value: Any, attn_bias: Any, *_: Any, **__: Any
) -> tuple[Any, Any, Any, Any]:
    import torch

    bias = None if attn_bias is None else torch.empty_like(attn_bias)
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), bias
