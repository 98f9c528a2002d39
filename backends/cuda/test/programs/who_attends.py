"""cuDNN as torch.nn.attention calls it, for what it has and unless a program says otherwise."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from _numbers import drawn
from torch.nn.attention import SDPBackend, sdpa_kernel


def is_cudnn(dtype: torch.dtype = torch.float16, **options: Any) -> bool:
    x = drawn(2, 3, 8, 16, dtype=dtype).to("xcuda").requires_grad_()
    return "EfficientAttention" in F.scaled_dot_product_attention(x, x, x, **options).grad_fn.name()


assert is_cudnn()
assert is_cudnn(is_causal=True)
assert not is_cudnn(torch.float32)
assert not is_cudnn(dropout_p=0.5)
with sdpa_kernel(SDPBackend.MATH):
    assert not is_cudnn()
with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION], set_priority=True):
    assert not is_cudnn()
with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    assert is_cudnn()
    with pytest.raises(RuntimeError, match=r"(?s)^No enabled backend of.*Besides MATH there is EFFICIENT_ATTENTION"):
        is_cudnn(torch.float32)
