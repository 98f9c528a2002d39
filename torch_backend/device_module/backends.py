"""``torch.backends.<name>``: what programs set in torch.backends.cuda.

The choice between ways to compute attention is PyTorch's own, for all devices.
"""

from dataclasses import dataclass

import torch  # noqa: F401  # before anything else
from torch.backends.cuda import (
    allow_fp16_bf16_reduction_math_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
)

__all__ = [
    "allow_fp16_bf16_reduction_math_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
]


def is_built() -> bool:
    """Whether this PyTorch can have the device: it has."""
    return True


@dataclass
class _Matmul:
    """What products of matrices may do. Devices are not told, as CUDA devices that cannot are not: they are exact."""

    allow_tf32: bool = False
    allow_fp16_reduced_precision_reduction: bool = True
    allow_bf16_reduced_precision_reduction: bool = True
    allow_fp16_accumulation: bool = False
    fp32_precision: str = "none"


matmul = _Matmul()
