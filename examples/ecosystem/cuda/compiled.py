"""A compiled step is the step."""

import torch


@torch.compile
def step(x, weight):
    """A layer."""
    return torch.nn.functional.gelu(x @ weight).softmax(-1)


x, weight = torch.randn(8, 16, device="cuda"), torch.randn(16, 4, device="cuda", requires_grad=True)
result = step(x, weight)
result.square().sum().backward()
expected = torch.nn.functional.gelu(x @ weight).softmax(-1)
torch.testing.assert_close(result, expected)
assert weight.grad.is_cuda
