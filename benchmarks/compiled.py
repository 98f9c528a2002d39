"""torch.compile with its default backend: the same program on both sides, and against eager mode."""

from collections.abc import Callable
from functools import partial

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
    for name, elements in (("chain of 10^3", 1000), ("chain of 10^6", 1_000_000)):
        works = [_chain(where, elements, fast) for where, fast in ((device, True), (cpu, True), (device, False))]
        rows.append(time_row(name, compare(works[0], works[1]), "us"))
        rows.append(time_row(f"{name}, over eager", compare(works[0], works[2]), "us"))
    for name, work in (("layer_norm and gelu MLP", _mlp), ("transformer step", _transformer_step)):
        rows.append(time_row(name, compare(work(device), work(cpu), rounds=51, round_s=0.002), "ms"))
    return rows


def _chain(device: torch.device, elements: int, fast: bool) -> Work:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x * y + 0.5).relu()
        return x

    torch.manual_seed(0)
    x, y = torch.randn(elements).to(device), torch.randn(elements).to(device)
    return partial(_compiled(chain) if fast else chain, x, y)


def _compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(function, fullgraph=True, dynamic=False)


def _mlp(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 512)).to(device)
    x = torch.randn(64, 512).to(device)

    def step() -> None:
        F.mse_loss(fast(x), x).backward()

    fast = _compiled(model)
    return step


def _transformer_step(device: torch.device) -> Work:
    """The step of benchmarks.training, with the model compiled."""
    step = transformer(device)
    model, *rest = step.args
    return partial(step.func, _compiled(model), *rest)
