"""Meta kernels that torch 2.11 lacks: what is traced, or runs as a kernel of the device, knows its results' shapes.

Without that of attention's gradient DTensor and the compiler come to PyTorch's text that says to write a kernel; an
operator whose results' shapes are not known runs on the CPU. May go with torch 2.11 and 2.12.
"""

from collections.abc import Callable
from typing import Any


def register() -> None:
    """Add them where PyTorch has none."""
    import torch

    for name, function in _KERNELS.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
            torch.library.impl(name, "Meta")(function)


def _attention_gradients(
    grad_out: Any, query: Any, key: Any, value: Any, attn_bias: Any, *_: Any, **__: Any
) -> tuple[Any, Any, Any, Any]:
    import torch

    bias = None if attn_bias is None else torch.empty_like(attn_bias)
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), bias


def _standard_gamma(concentration: Any, generator: Any = None) -> Any:
    import torch

    return torch.empty_like(concentration)


_KERNELS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _attention_gradients,
    "aten::_standard_gamma": _standard_gamma,
}
