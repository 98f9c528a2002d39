"""torch.compile with its default backend: the same program on both sides, and against eager mode."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare
from benchmarks.training import transformer


def run(device: torch.device) -> list[Row]:
    """Microseconds of 12 pointwise operators, milliseconds of the rest. What is "over eager" is on one device."""
    cpu = torch.device("cpu")
    rows = []
    chains = (
        ("chain of 10^3", _multiplied, 1000),
        ("chain of 10^6", _multiplied, 1_000_000),
        ("chain of 10^6 with sigmoids", _with_sigmoids, 1_000_000),
    )
    for name, chain, elements in chains:
        works = [_chain(chain, where, elements, fast) for where, fast in ((device, True), (cpu, True), (device, False))]
        rows.append(time_row(name, compare(works[0], works[1]), "us"))
        rows.append(time_row(f"{name}, over eager", compare(works[0], works[2]), "us"))
    rounds: dict[str, Any] = {"rounds": 51, "round_s": 0.002}
    name, mlp = "layer_norm and gelu MLP", _mlp(device)
    rows.append(time_row(name, compare(mlp, _mlp(cpu), **rounds), "ms"))
    rows.append(time_row(f"{name}, over eager", compare(mlp, _mlp(device, fast=False), **rounds), "ms"))
    rows.append(
        time_row("transformer step", compare(_transformer_step(device), _transformer_step(cpu), **rounds), "ms")
    )
    return rows


def _multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = (x * y + 0.5).relu()
    return x


def _with_sigmoids(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = (x * y + 0.5).sigmoid()
    return x


def _chain(chain: Callable[..., torch.Tensor], device: torch.device, elements: int, fast: bool) -> Work:
    torch.manual_seed(0)
    x, y = torch.randn(elements).to(device), torch.randn(elements).to(device)
    return partial(_compiled(chain) if fast else chain, x, y)


def _compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(function, fullgraph=True, dynamic=False)


def _mlp(device: torch.device, fast: bool = True) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 512)).to(device)
    x = torch.randn(64, 512).to(device)

    def step() -> None:
        F.mse_loss(run(x), x).backward()

    run = _compiled(model) if fast else model
    return step


def _transformer_step(device: torch.device) -> Work:
    """The step of benchmarks.training, with the model compiled."""
    step = transformer(device)
    model, *rest = step.args
    return partial(step.func, _compiled(model), *rest)
