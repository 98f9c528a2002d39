"""What processes do that train one model."""

import torch
from torch import Tensor, nn

WEIGHTS = [[1.0, -2.0, 3.0]]
"""What there is to learn."""

_STEPS = 60


def _batch(seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 3, generator=torch.Generator().manual_seed(seed))
    return x.to(device), (x @ torch.tensor(WEIGHTS).T).to(device)


def train(model: nn.Module, rank: int) -> tuple[float, float]:
    """Some steps on batches of this rank; the loss of the first and of the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    device = next(model.parameters()).device
    losses = []
    for step in range(_STEPS):
        x, y = _batch(1000 * rank + step, device)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.accelerator.synchronize(device)
    return losses[0], losses[-1]
