"""Train a small network on the device: TORCH_BACKEND=numpy_device:NumpyDevice PYTHONPATH=. python train.py."""

import torch
from numpy_device import NumpyDevice
from torch import nn
from torch.nn import functional as F

import torch_backend

torch_backend.activate(NumpyDevice)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to("arrays")
x = torch.randn(256, 8).to("arrays")
target = x.sum(1, keepdim=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
losses = []
for _ in range(100):
    loss = F.mse_loss(net(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
print(torch_backend.fallback.report())  # what the device has no kernel for
assert losses[-1] < losses[0] / 20, "it does not learn"
