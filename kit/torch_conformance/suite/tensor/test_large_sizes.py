"""Sizes that kernels divide: rows longer and shorter than a block of items, many of them and few, and remainders."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torch_conformance.suite.tensor._support import assert_close, assert_same, each

SIZES = [(3, 5003), (257, 129), (2001, 7), (5, 33, 65)]
"""Of one block, of many, and of neither's multiple."""

every_size = pytest.mark.parametrize("shape", SIZES, ids=lambda shape: "x".join(map(str, shape)))


def _distinct(shape: tuple[int, ...]) -> Tensor:
    """Whole numbers in no order, no two of them equal."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7919 % count if count % 7919 else torch.arange(count).flip(0)).view(shape).float()


def _waves(shape: tuple[int, ...]) -> Tensor:
    return (torch.arange(torch.Size(shape).numel()) * 0.37).sin().view(shape)


EXACT: dict[str, Callable[[Tensor, int], Tensor | tuple[Tensor, ...]]] = {
    "sort": lambda x, dim: x.sort(dim),
    "stable sort of few values": lambda x, dim: (x % 5).sort(dim=dim, stable=True),
    "sort from the largest": lambda x, dim: x.sort(dim, descending=True),
    "sort of integers": lambda x, dim: x.long().sort(dim),
    "argsort of signed values": lambda x, dim: (x - 1000).argsort(dim),
    "topk": lambda x, dim: x.topk(min(5, x.size(dim)), dim),
    "kthvalue": lambda x, dim: x.kthvalue(x.size(dim) // 2 + 1, dim),
    "median": lambda x, dim: x.median(dim),
    "max": lambda x, dim: x.max(dim),
    "min": lambda x, dim: x.min(dim),
    "argmax": lambda x, dim: x.argmax(dim),
    "all": lambda x, dim: (x > 0).all(dim),
    "any": lambda x, dim: (x == 0).any(dim),
    "count_nonzero": lambda x, dim: (x % 3).count_nonzero(dim),
    "sum of integers": lambda x, dim: x.long().sum(dim),
    "cumsum of integers": lambda x, dim: x.long().cumsum(dim),
    "cummax": lambda x, dim: x.cummax(dim),
    "cummin": lambda x, dim: x.cummin(dim),
    "flip": lambda x, dim: x.flip(dim),
    "roll": lambda x, dim: x.roll(3, dim),
    "cat": lambda x, dim: torch.cat([x, x[:1] if dim == 0 else x, x], dim),
    "tril": lambda x, dim: x.tril(dim),
    "index_select": lambda x, dim: x.index_select(dim, torch.arange(x.size(dim), device=x.device).flip(0)),
    "nonzero": lambda x, dim: (x % 7 == dim).nonzero(),
    "unique": lambda x, dim: (x % 11).unique(),
}
CLOSE: dict[str, Callable[[Tensor, int], Tensor | tuple[Tensor, ...]]] = {
    "sum": lambda x, dim: x.sum(dim),
    "mean": lambda x, dim: x.mean(dim),
    "prod": lambda x, dim: (1 + x / x.size(dim)).prod(dim),
    "var": lambda x, dim: x.var(dim),
    "norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: (1 + x / x.size(dim)).cumprod(dim),
    "logcumsumexp": lambda x, dim: x.logcumsumexp(dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
    "softmax": lambda x, dim: x.softmax(dim),
    "log_softmax": lambda x, dim: x.log_softmax(dim),
    "layer_norm": lambda x, dim: functional.layer_norm(x, x.shape[-1:]),
    "product with its transpose": lambda x, dim: x @ x.mT / x.size(-1),
    "cdist": lambda x, dim: torch.cdist(x[..., :50, :], x[..., :50, :] + 3),
}


def _parts(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


@every_size
@each("function", EXACT)
def test_exact(device: str, function: Callable[[Tensor, int], Tensor | tuple[Tensor, ...]], shape: tuple[int]) -> None:
    """What chooses, moves or counts elements gives the CPU's results along the first and the last dimension."""
    x = _distinct(shape)
    for dim in (0, -1):
        pairs = zip(_parts(function(x.to(device), dim)), _parts(function(x, dim)), strict=True)
        for actual, expected in pairs:
            assert_same(actual, expected, device, f"dimension {dim}")


@every_size
@each("function", CLOSE)
def test_close(device: str, function: Callable[[Tensor, int], Tensor | tuple[Tensor, ...]], shape: tuple[int]) -> None:
    """What computes with elements gives the CPU's results along the first and the last dimension."""
    x = _waves(shape)
    for dim in (0, -1):
        assert_close(function(x.to(device), dim), function(x, dim), device, f"dimension {dim}")


@each("function", {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp})
def test_the_largest_element_may_be_anywhere(device: str, function: Callable[[Tensor, int], Tensor]) -> None:
    """What takes exponentials of a row does not overflow, wherever the row's only large element is."""
    for count in (5, 64, 300):
        x = torch.eye(count) * 500
        for dim in (0, 1):
            actual, expected = function(x.to(device), dim), function(x, dim)
            assert_close(actual, expected, device, f"dimension {dim} of {count} rows")
