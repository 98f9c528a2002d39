"""One training step (forward, backward, optimizer) of three small models.

Autograd runs an asynchronous device's backward in a thread of its own, native CPU's in the caller's. On a busy machine
waiting for that thread to be scheduled is part of the device's time.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def run(device: torch.device) -> list[Row]:
    """Milliseconds of one step."""
    rows = []
    for name, step in {"MLP": _mlp, "transformer encoder layer": _transformer, "CNN": _cnn}.items():
        comparison = compare(step(device), step(torch.device("cpu")), rounds=101, round_s=0.002)
        rows.append(time_row(name, comparison, "ms"))
    return rows


def _step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, optimizer: torch.optim.Optimizer, loss: Loss
) -> None:
    optimizer.zero_grad()
    loss(model(inputs), targets).backward()
    optimizer.step()


def _mlp(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs, targets = torch.randn(64, 784), torch.randint(10, (64,))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return partial(_step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)


def _transformer(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    inputs, targets = torch.randn(8, 32, 128), torch.randn(8, 32, 128)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return partial(_step, model, inputs.to(device), targets.to(device), optimizer, F.mse_loss)


def _cnn(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 14 * 14, 10),
    )
    inputs, targets = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return partial(_step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)
