"""Seeds, states of random numbers, and dropout under activation checkpointing."""

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
first = torch.randn(4, device="cuda")
torch.cuda.manual_seed(0)
assert torch.equal(first, torch.randn(4, device="cuda"))
state = torch.cuda.get_rng_state_all()
second = torch.rand(4, device="cuda")
torch.cuda.set_rng_state_all(state)
assert torch.equal(second, torch.rand(4, device="cuda"))
generator = torch.Generator("cuda").manual_seed(1)
assert torch.randperm(100, device="cuda", generator=generator).sum() == 4950
network = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1)).cuda()
x = torch.randn(4, 8, device="cuda", requires_grad=True)
with torch.random.fork_rng(devices=[0], device_type="cuda"):
    network(x).sum().backward()
plain, x.grad = x.grad, None
checkpoint(network, x, use_reentrant=False).sum().backward()
assert plain.shape == x.grad.shape
