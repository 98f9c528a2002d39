"""A transformer layer with scaled dot products, masks, and a choice of kernels."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

query, key, value = (torch.randn(2, 4, 16, 8, device="cuda", requires_grad=True) for _ in range(3))
attention = torch.nn.functional.scaled_dot_product_attention
with sdpa_kernel(SDPBackend.MATH):
    expected = attention(query, key, value, is_causal=True)
torch.testing.assert_close(attention(query, key, value, is_causal=True), expected)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).cuda()
mask = torch.nn.Transformer.generate_square_subsequent_mask(10, device="cuda")
layer(torch.randn(2, 10, 32, device="cuda"), src_mask=mask, is_causal=True).sum().backward()
assert all(parameter.grad.is_cuda for parameter in layer.parameters())
