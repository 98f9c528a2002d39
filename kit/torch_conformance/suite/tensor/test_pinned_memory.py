"""Pinned host memory, and copies that do not block."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_equal, assert_values, each, numbers, raises
from torch_conformance.synchronization import synchronize

pinned = needs.feature("pinned memory")


@pinned
def test_is_pinned(device: str) -> None:
    """is_pinned is True for what is pinned, parts of it included, and for nothing else."""
    x = torch.arange(4.0).pin_memory()
    assert x.is_pinned(), "pin_memory() gives memory that says it is not pinned"
    assert x.pin_memory() is x, "memory that is pinned already was copied"
    assert x[1:].is_pinned(), "part of pinned memory says that it is not pinned"
    assert torch.empty(3, pin_memory=True).is_pinned(), (
        "torch.empty(pin_memory=True) gives memory that says it is not pinned"
    )
    assert torch.empty(3, pin_memory=True).device.type == "cpu", "pinned memory is not on the CPU"
    ordinary = torch.arange(4.0)
    assert not ordinary.is_pinned(), "ordinary memory says that it is pinned"
    assert not x.clone().is_pinned(), "a clone of pinned memory says that it is pinned"
    assert not torch.ones(3, device=device).is_pinned(), "memory of the device says that it is pinned"


@pinned
def test_pinned_values(device: str) -> None:
    """Pinned memory holds the values and strides of what it was made from, and has memory of its own."""
    x = torch.arange(6.0).view(2, 3)
    for source in (x, x.t(), x[:, 1], x[:0]):
        pinned = source.pin_memory()
        assert_equal(pinned, source, "pinned memory")
        if source.numel():
            pinned.fill_(-1)
    assert_equal(x, torch.arange(6.0).view(2, 3), "memory after a write to a pinned copy of it")
    assert_values(torch.zeros(3, pin_memory=True).to(device), [0, 0, 0], "zeros made in pinned memory")


WRONG: dict[str, Callable[[str], Tensor]] = {
    "pin_memory()": lambda d: torch.ones(3, device=d).pin_memory(),
    "pin_memory=True": lambda d: torch.empty(3, device=d, pin_memory=True),
}


@pinned
@each("pin", WRONG)
def test_memory_of_the_device_cannot_be_pinned(device: str, pin: Callable[[str], Tensor]) -> None:
    """Only memory of the host can be pinned."""
    with raises(RuntimeError, says="pin"):
        pin(device)


@pinned
@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_non_blocking_with_pinned_memory(device: str, size: int) -> None:
    """Copies from and to pinned memory that do not block have arrived after a synchronization."""
    source = torch.arange(float(size)).pin_memory()
    x = source.to(device, non_blocking=True)
    back = torch.zeros(size, pin_memory=True)
    back.copy_(x, non_blocking=True)
    synchronize(device)
    assert_equal(back, source, f"{size} elements sent to the device and back")


def test_non_blocking_with_ordinary_memory(device: str) -> None:
    """A copy from ordinary memory that does not block has read its source when it returns."""
    source = torch.arange(1000.0)
    x = source.to(device, non_blocking=True, copy=True)
    source.zero_()
    back = torch.zeros(1000).copy_(x, non_blocking=True)
    synchronize(device)
    assert_equal(back, torch.arange(1000.0), "a copy from memory that was overwritten after the call")


@pinned
def test_blocking_copies_are_complete(device: str) -> None:
    """A copy that blocks has read its source, and written its destination on the host, when it returns."""
    source = torch.arange(1000.0).pin_memory()
    x = torch.zeros(1000, device=device)
    for round in range(5):
        x.copy_(source)
        source.add_(1)
        back = torch.zeros(1000, pin_memory=True).copy_(x)
        assert_equal(back, torch.arange(1000.0) + round, f"a blocking copy there and back, round {round}")


@pinned
def test_non_blocking_conversion(device: str) -> None:
    """A copy that does not block and has to convert or transpose gives the right values."""
    source = torch.arange(12.0).view(3, 4).pin_memory()
    x = torch.zeros(4, 3, dtype=torch.int64, device=device)
    x.copy_(source.t(), non_blocking=True)
    synchronize(device)
    source.zero_()
    back = torch.zeros(3, 4, pin_memory=True)
    back.copy_(x.t(), non_blocking=True)
    synchronize(device)
    assert_equal(back, torch.arange(12.0).view(3, 4), "a converted, transposed round trip")


@pinned
def test_pinned_memory_is_not_reused_too_early(device: str) -> None:
    """Pinned memory that is freed while a copy from it is under way is not given out before the copy is done."""
    x = torch.zeros(20, 1000, device=device)
    for number, row in enumerate(x):
        row.copy_(torch.full((1000,), float(number)).pin_memory(), non_blocking=True)
    assert_equal(x, torch.arange(20.0)[:, None].expand(20, 1000), "rows copied from pinned memory that was freed")


@pinned
@needs.devices(2)
def test_pinned_memory_serves_every_device(device: str) -> None:
    """Copies from one piece of pinned memory reach two devices."""
    source = numbers(10_000).pin_memory()
    there = [source.to(f"{device}:{index}", non_blocking=True) for index in (0, 1)]
    for index, x in enumerate(there):
        synchronize(device, index)
        assert_equal(x, numbers(10_000), f"a copy from pinned memory to device {index}")
