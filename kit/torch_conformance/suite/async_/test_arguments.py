"""What is passed to a call may change once it has returned, though the work may still be waiting."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, keep_busy, pinned


def test_host_scalars(device: str) -> None:
    """A CPU scalar that an operator takes may be overwritten when the operator has returned."""
    x, two = torch.ones(1000, device=device), torch.tensor(2.0)
    keep_busy(device)
    y = x * two
    x.mul_(two).add_(two)
    two.fill_(50)
    assert_all(y, 2, "x * 2")
    assert_all(x, 4, "x * 2 + 2 in place")


def test_host_indices(device: str) -> None:
    """Indices on the CPU may be overwritten when indexing with them has returned."""
    x, index = torch.arange(10.0, device=device), torch.tensor([7, 8])
    keep_busy(device)
    y = x[index]
    x[index] = -1.0
    index.zero_()
    assert y.tolist() == [7, 8]
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, 9]


@pytest.mark.parametrize("count", [1, 1000, 300_000])
def test_pageable_sources(device: str, count: int) -> None:
    """Ordinary host memory may be overwritten when a copy from it, said not to block, has returned."""
    source = torch.arange(float(count * 2))
    keep_busy(device)
    x = source.to(device, non_blocking=True, copy=True)
    y = torch.empty(count, 2, device=device).copy_(source.view(2, count).t(), non_blocking=True)
    source.zero_()
    expected = torch.arange(float(count * 2))
    assert torch.equal(x.cpu(), expected), "a copy read its source after it had returned"
    assert torch.equal(y.cpu(), expected.view(2, count).t()), "a strided copy read its source after it had returned"


def test_pageable_destinations(device: str) -> None:
    """A copy into ordinary host memory, said not to block, never writes into what that memory has become."""
    x = torch.ones(300_000, device=device)
    for _ in range(5):
        keep_busy(device, 2)
        x.to("cpu", non_blocking=True)
        other = torch.zeros(300_000)
        keep_busy(device, 2)
        x.cpu()
        assert_all(other, 0, "a copy to the host was written to memory that had been given back")


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in-place": lambda x: x.add_(100),
    "transposed": lambda x: x.t_(),
    "resized": lambda x: x.resize_(5),
    "grown": lambda x: x.resize_(1000, 1000).fill_(3),
    "emptied": lambda x: x.untyped_storage().resize_(0),
    "set": lambda x: x.set_(torch.zeros(7, device=x.device)),
    "data": lambda x: setattr(x, "data", torch.zeros(2, device=x.device)),
    "copied-into": lambda x: x.copy_(torch.zeros(30, 40)),
}


@needs.feature("storage")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_inputs(device: str, change: Callable[[Tensor], object]) -> None:
    """An operator's input may change its values, its shape or its memory when the operator has returned."""
    expected = torch.arange(1200.0).view(30, 40)
    x = pinned(expected).to(device, non_blocking=True, copy=True)
    keep_busy(device)
    y, z = x * 2, x.t() + 1
    s = x.sum(0)
    change(x)
    refill = [torch.full((30, 40), -7.0, device=device) for _ in range(3)]
    assert torch.equal(y.cpu(), expected * 2)
    assert torch.equal(z.cpu(), expected.t() + 1)
    torch.testing.assert_close(s.cpu(), expected.sum(0))
    for part in refill:
        assert_all(part, -7, "memory that was filled after the operators")
