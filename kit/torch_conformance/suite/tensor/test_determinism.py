"""Deterministic mode: the same inputs give the same bits, in whichever order threads come to add."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.routes import has

CALLS = 6

ROWS = 37
"""Of what is added to: each gets a hundred rows of the input."""


def _indices(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[0]) * 7919 % ROWS).to(x.device)


def _gradient(function: Callable[[Tensor], Tensor], weight: Tensor) -> Tensor:
    weight = weight.clone().requires_grad_()
    function(weight).sum().backward()
    assert weight.grad is not None
    return weight.grad


def _convolution(weight: Tensor, x: Tensor) -> Tensor:
    return F.conv2d(x.view(16, 16, 32, 32), weight)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(),
    "vector_norm": lambda x: torch.linalg.vector_norm(x),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "mm": lambda x: x.t() @ x,
    "bmm": lambda x: x.view(64, 64, 64) @ x.view(64, 64, 64),
    "cumsum": lambda x: x.cumsum(0),
    "index_add": lambda x: torch.zeros_like(x[:ROWS]).index_add(0, _indices(x), x),
    "index_put": lambda x: torch.zeros_like(x[:ROWS]).index_put((_indices(x),), x, accumulate=True),
    "scatter_add": lambda x: torch.zeros_like(x[:ROWS]).scatter_add(0, _indices(x)[:, None].expand_as(x), x),
    "gradient of embedding": lambda x: _gradient(lambda w: F.embedding(_indices(x), w) * x, x[:ROWS]),
    "gradient of index_select": lambda x: _gradient(lambda w: w.index_select(0, _indices(x)) * x, x[:ROWS]),
    "gradient of conv2d": lambda x: _gradient(lambda w: _convolution(w, x), x.flatten()[:1152].view(8, 16, 3, 3)),
}


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """Deterministic mode, for each test."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@promise("TB_MATH_DETERMINISTIC")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_inputs_give_the_same_bits(device: str, name: str) -> None:
    """Sums of numbers of many sizes, which depend on the order in which they are added."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 64, generator=generator) * 10 ** torch.randn(4096, 64, generator=generator)
    x = x.to(device)
    try:
        first = FUNCTIONS[name](x).cpu()
    except RuntimeError as error:
        # torch.use_deterministic_algorithms documents that operators may raise, cumsum of CUDA among them.
        if "deterministic" not in str(error) or has("torch_backend"):
            raise
        needs.not_offered(f"{name}: {error}")
    assert bool(first.isfinite().all()), f"{name}: not finite"
    for call in range(2, CALLS + 1):
        again = FUNCTIONS[name](x).cpu()
        differ = int((again != first).sum())
        assert differ == 0, (
            f"{name}: {differ} of {first.numel()} elements differ between the first call and call {call}"
        )
