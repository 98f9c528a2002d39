"""``torch.backends.<name>``: what programs set in torch.backends.cuda.

PyTorch has one of each of these settings for a process. Kernels that ask for ``matmul``'s have them with every call
(TB_KERNEL_MATH_FLAGS in device.h).
"""

import torch  # noqa: F401  # before anything else
from torch.backends.cuda import (
    allow_fp16_bf16_reduction_math_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    math_sdp_enabled,
    matmul,
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
