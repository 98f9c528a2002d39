"""Tensors of more than 2^31 elements, where 32-bit indices end. With --large: minutes, and 12 GiB of memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import DEVICE

_ROWS, _COLUMNS = 2**16, 2**15  # 2^31 elements
_BEYOND = 2**31 + 4099

CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: x + 3,
    "compared": lambda x: x.masked_fill(x > 200, 0),
    "cast": lambda x: x.bool(),
    "transposed": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).t() + 1,
    "transposed copy": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).t().contiguous(),
    "sum": lambda x: x.sum(),
    "argmax": lambda x: x.argmax(),
    "sums of rows": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).sum(1),
    "sums of columns": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).sum(0),
    "scan": lambda x: x.cumsum(0, dtype=torch.uint8),
    "gathered": lambda x: x.index_select(0, torch.tensor([0, 5, _BEYOND - 1, 2**31], device=x.device)),
    "scattered": lambda x: x.index_fill(0, torch.tensor([_BEYOND - 1, 2**31], device=x.device), 7),
    "joined": lambda x: torch.cat([x[: 2**30], x[2**30 :]]),
    "reversed": lambda x: x.flip(0),
}


@pytest.fixture(scope="module")
def bytes_beyond(request: pytest.FixtureRequest) -> torch.Tensor:
    if not request.config.getoption("--large"):
        pytest.skip("takes minutes and 12 GiB of memory: --large")
    return torch.arange(_BEYOND, dtype=torch.int32).to(torch.uint8)


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str, bytes_beyond: torch.Tensor) -> None:
    assert torch.equal(CALLS[name](bytes_beyond.to(DEVICE)).cpu(), CALLS[name](bytes_beyond))
