"""Prints whether the device attends, and whether that is cuDNN where later places are left out."""

import torch
from _attention import compare, draw

import torch_backend

print("source:    plugin" in str(torch_backend.explain("_scaled_dot_product_efficient_attention")))
with torch.profiler.profile() as profile:
    compare(*(draw(2, 3, 5, 16) for _ in range(3)), is_causal=True)
    torch.xcuda.synchronize()
print(any("cudnn_sdpa" in event.name for event in profile.events()))
compare(*(draw(2, 3, 5, 16) for _ in range(3)))
assert "source:    plugin" in str(torch_backend.explain("convolution_overrideable"))
