"""The training loop: what any PyTorch program does, and no line that is for one device."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import data
import torch
from model import DigitsNet
from torch.nn import functional as F


@dataclass(frozen=True)
class Settings:
    """What a run depends on besides the device."""

    epochs: int
    batch_size: int
    seed: int


@dataclass(frozen=True)
class Run:
    """One training: the loss of every step, the held-out accuracy after every epoch, and the time it took."""

    losses: list[float]
    accuracies: list[float]
    seconds: float


def train(
    digits: data.Digits, device: torch.device, settings: Settings, on_step: Callable[[], object] = lambda: None
) -> Run:
    """Train from the seed; ``on_step`` is called after every step."""
    pin_memory = device.type != "cpu"
    training = data.training_loader(digits, settings.batch_size, settings.seed, pin_memory)
    held_out = data.held_out_loader(digits, settings.batch_size, pin_memory)
    torch.manual_seed(settings.seed)
    model = DigitsNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    losses, accuracies = [], []
    start = time.perf_counter()
    for _ in range(settings.epochs):
        for batch in training:
            images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())  # stays on the device: reading it here would wait for every step
            on_step()
        accuracies.append(_accuracy(model, held_out, device))
    curve = torch.stack(losses).tolist()  # waits for the device
    return Run(curve, accuracies, time.perf_counter() - start)


@torch.no_grad()
def _accuracy(model: DigitsNet, loader: data.Loader, device: torch.device) -> float:
    model.eval()
    hits = []
    for batch in loader:
        images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
        hits.append(model(images).argmax(1) == labels)
    model.train()
    return torch.cat(hits).float().mean().item()
