"""One step of torch's optimizers, and what goes with it, over the 16 small parameters of an MLP."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn, optim

from benchmarks.result import Row, geomean_row, time_row
from benchmarks.timer import Work, compare

Make = Callable[[Iterable[nn.Parameter]], optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "SGD": partial(optim.SGD, lr=0.01),
    "SGD momentum": partial(optim.SGD, lr=0.01, momentum=0.9),
    "SGD momentum, one by one": partial(optim.SGD, lr=0.01, momentum=0.9, foreach=False),
    "SGD momentum, fused": partial(optim.SGD, lr=0.01, momentum=0.9, fused=True),
    "Adam": optim.Adam,
    "Adam, one by one": partial(optim.Adam, foreach=False),
    "Adam, fused": partial(optim.Adam, fused=True),
    "AdamW": optim.AdamW,
    "AdamW, foreach": partial(optim.AdamW, foreach=True),
    "AdamW, fused": partial(optim.AdamW, fused=True),
    "RMSprop": optim.RMSprop,
    "Adagrad": optim.Adagrad,
    "NAdam": optim.NAdam,
    "RAdam": optim.RAdam,
}


def run(device: torch.device) -> list[Row]:
    """Microseconds of one step."""
    cpu = torch.device("cpu")
    rows = []
    for name, make in OPTIMIZERS.items():
        rows.append(time_row(name, compare(_step(make, device), _step(make, cpu), rounds=61, round_s=0.002), "us"))
    for name, work in {"clip_grad_norm_": _clip, "zero_grad": _zero}.items():
        rows.append(time_row(name, compare(work(device), work(cpu), rounds=61, round_s=0.002), "us"))
    return [*rows, geomean_row(rows)]


def _parameters(device: torch.device) -> list[nn.Parameter]:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(8))).to(device)
    parameters = list(layers.parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def _step(make: Make, device: torch.device) -> Work:
    return make(_parameters(device)).step


def _clip(device: torch.device) -> Work:
    return partial(nn.utils.clip_grad_norm_, _parameters(device), 1.0)


def _zero(device: torch.device) -> Work:
    return partial(optim.SGD(_parameters(device), lr=0.01).zero_grad, set_to_none=False)
