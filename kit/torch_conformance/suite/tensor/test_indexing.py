"""Reading and writing parts of tensors with x[index], and the operators beneath it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import (
    assert_equal,
    assert_same,
    assert_same_outcome,
    assert_values,
    each,
    every_dtype,
    raises,
)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

INDICES: dict[str, Callable[[str], Any]] = {
    "integer": lambda d: 1,
    "negative": lambda d: -1,
    "slice": lambda d: slice(0, 3, 2),
    "ellipsis": lambda d: (..., 1),
    "none": lambda d: (None, 1, None),
    "tuple": lambda d: (slice(None), 2, 1),
    "list": lambda d: [0, 2],
    "tensor": lambda d: torch.tensor([2, 0, 0], device=d),
    "tensor of the CPU": lambda d: torch.tensor([2, 0, 0]),
    "negative tensor": lambda d: torch.tensor([-1, -3], device=d),
    "matrix": lambda d: torch.tensor([[0, 1], [2, 0]], device=d),
    "pair": lambda d: (torch.tensor([0, 1], device=d), torch.tensor([1, 1], device=d)),
    "split pair": lambda d: (torch.tensor([0, 1], device=d), slice(None), torch.tensor([1, 3], device=d)),
    "broadcast pair": lambda d: (torch.tensor([[0], [1]], device=d), torch.tensor([0, 2], device=d)),
    "mixed": lambda d: (slice(1, 3), torch.tensor([0, 1], device=d)),
    "mask": lambda d: torch.tensor([True, False, True], device=d),
    "mask of the CPU": lambda d: torch.tensor([True, False, True]),
    "mask with an integer": lambda d: (torch.tensor([True, False, True], device=d), 2),
    "full mask": lambda d: (torch.arange(60).reshape(3, 4, 5) % 7 == 0).to(d),
    "mask of nothing": lambda d: torch.zeros(3, 4, 5, dtype=torch.bool, device=d),
    "0-d": lambda d: torch.tensor(1, device=d),
    "boolean": lambda d: True,
    "nothing": lambda d: torch.tensor([], dtype=torch.int64, device=d),
    "numpy": lambda d: np.array([0, 2]),
}

WRONG: dict[str, Callable[[str], Any]] = {
    "integer out of range": lambda d: 3,
    "negative integer out of range": lambda d: -4,
    "tensor out of range": lambda d: torch.tensor([3], device=d),
    "negative tensor out of range": lambda d: torch.tensor([-4], device=d),
    "too many": lambda d: (0, 0, 0, 0),
    "mask of a wrong size": lambda d: torch.tensor([True, False], device=d),
    "indices that do not broadcast": lambda d: (torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)),
    "indices that are no integers": lambda d: torch.tensor([1.0], device=d),
}

VALUES: dict[str, Callable[[str], Any]] = {
    "number": lambda d: 7,
    "tensor of the CPU": lambda d: torch.tensor(8.0),
    "row": lambda d: torch.arange(5.0, device=d),
}


def read(index: Callable[[str], Any]) -> Callable[[str], Tensor]:
    """Read a part of a tensor on the device that is given."""

    def run(where: str) -> Tensor:
        part = torch.arange(60.0, device=where).reshape(3, 4, 5)[index(where)]
        assert isinstance(part, Tensor)
        return part

    return run


def write(index: Callable[[str], Any], value: Callable[[str], Any]) -> Callable[[str], Tensor]:
    """Write a part of a tensor on the device that is given."""

    def run(where: str) -> Tensor:
        x = torch.arange(60.0, device=where).reshape(3, 4, 5)
        x[index(where)] = value(where)
        return x

    return run


@each("index", INDICES)
def test_reading(device: str, index: Callable[[str], Any]) -> None:
    """x[index] gives the elements that it gives on the CPU."""
    assert_same_outcome(read(index), device, "x[index]")


@each("value", VALUES)
@each("index", INDICES)
def test_writing(device: str, index: Callable[[str], Any], value: Callable[[str], Any]) -> None:
    """``x[index] = value`` writes the elements that it writes on the CPU, and no others."""
    assert_same_outcome(write(index, value), device, "x after x[index] = value")


# CUDA's kernels end the process with an assertion if elements of an index are out of range.
@each("index", WRONG, torch_backend=["tensor out of range", "negative tensor out of range"])
def test_wrong_indices_raise(device: str, index: Callable[[str], Any]) -> None:
    """An index that does not fit raises the error that it raises on the CPU, reading and writing."""
    with pytest.raises(IndexError):
        read(index)("cpu")
    assert_same_outcome(read(index), device, "x[index]", messages=False)
    assert_same_outcome(write(index, lambda _: 7), device, "x after x[index] = 7", messages=False)
    assert torch.ones(2, device=device).sum().item() == 2, "the device does not work after a wrong index"


@every_dtype
def test_indexing_every_dtype(device: str, dtype: torch.dtype) -> None:
    """Elements of every dtype are read and written where the index says, on plain and transposed tensors."""
    base = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0]]).to(dtype)
    for name, expected in {"plain": base.clone(), "transposed": base.clone().t()}.items():
        x = expected.to(device)
        index = torch.tensor([1, 0])
        try:
            picked = expected[index]
        except (RuntimeError, NotImplementedError):
            picked = None  # the CPU cannot gather this dtype
        if picked is not None:
            assert_equal(x[index.to(device)], picked, f"rows of a {name} tensor of {dtype}")
        x[1, 0] = expected[0, 1]
        expected[1, 0] = expected[0, 1].clone()
        assert_equal(x, expected, f"a {name} tensor of {dtype} after a write")


def test_index_put_accumulates(device: str) -> None:
    """``index_put_(accumulate=True)`` adds every value, also where an index comes several times."""

    def run(where: str) -> Tensor:
        index = torch.tensor([0, 1, 0, 0], device=where)
        return torch.zeros(3, device=where).index_put_((index,), torch.ones(4, device=where), accumulate=True)

    assert_same(run(device), run("cpu"), device, "index_put_ with a repeated index")
    many = torch.arange(5000) % 7
    values = torch.zeros(7, dtype=torch.int64, device=device)
    values.index_put_((many.to(device),), torch.ones(5000, dtype=torch.int64, device=device), accumulate=True)
    assert_values(values, many.bincount().tolist(), "5000 values added to 7 places")


ADDITIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_add": lambda x, i, values: x.index_add(0, i, values),
    "scatter_add": lambda x, i, values: x.scatter_add(0, i, values),
    "index_put": lambda x, i, values: x.index_put((i,), values, accumulate=True),
}


@each("operator", ADDITIONS)
@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=needs.dtype(d)) for d in ("float16", "bfloat16", "int16", "int8", "uint8")]
)
def test_narrow_elements_are_added_to(
    device: str, dtype: str, operator: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    """All that is added to an element counts, and leaves those alone that lie in the same word of memory."""
    x, values = (torch.arange(length).remainder(5).to(getattr(torch, dtype)) for length in (11, 64))
    places = torch.arange(64) * 3 % 11
    added = operator(x.to(device), places.to(device), values.to(device))
    assert_same(added, operator(x, places, values), device, f"elements of {dtype} that were added to")


OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "take": lambda x, i: x.take(i),
    "put_": lambda x, i: x.put_(i, torch.tensor([10.0, 20.0, 30.0], device=x.device)),
    "put_ accumulating": lambda x, i: x.put_(i, torch.tensor([10.0, 20.0, 30.0], device=x.device), accumulate=True),
    "gather": lambda x, i: x.gather(0, i.view(1, 3)),
    "scatter_": lambda x, i: x.scatter_(0, i.view(1, 3), torch.tensor([[10.0, 20.0, 30.0]], device=x.device)),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i.view(1, 3), torch.ones(1, 3, device=x.device)),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 5.0),
    "index_add_": lambda x, i: x.index_add_(0, i, torch.ones(3, 4, device=x.device)),
    "index_copy_": lambda x, i: x.index_copy_(0, i, -torch.ones(3, 4, device=x.device)),
    "masked_select": lambda x, i: x.masked_select(x > 5),
    "masked_fill_": lambda x, i: x.masked_fill_(x > 5, -1.0),
    "masked_scatter_": lambda x, i: x.masked_scatter_(x > 5, -torch.arange(12.0, device=x.device)),
    "nonzero": lambda x, i: (x > 5).nonzero(),
    "argwhere": lambda x, i: (x % 3 == 0).argwhere(),
    "where": lambda x, i: torch.stack(torch.where(x > 5)),
    "take_along_dim": lambda x, i: x.take_along_dim(i.view(3, 1), 1),
    "tensor_split": lambda x, i: x.tensor_split([1, 2])[1],
}


@each("operator", OPERATORS)
@each("transposed", {"plain": False, "transposed": True})
def test_operators_that_index(device: str, operator: Callable[[Tensor, Tensor], Tensor], transposed: bool) -> None:
    """An operator that takes indices or a mask reads and writes what it does on the CPU, whatever the layout."""

    def run(where: str) -> Tensor:
        x = (
            torch.arange(12.0).reshape(4, 3).t().contiguous()
            if not transposed
            else torch.arange(12.0).reshape(4, 3).t()
        )
        index = torch.tensor([2, 0, 1], device=where)
        return operator(x.clone(memory_format=torch.preserve_format).to(where), index)

    assert_same(run(device), run("cpu"), device)


def test_advanced_indexing_copies_and_slices_do_not(device: str) -> None:
    """A write to x[tensor] read before leaves x alone, a write to x[slice] does not."""
    x = torch.arange(4.0, device=device)
    x[torch.tensor([0, 1], device=device)].fill_(9)
    assert_values(x, [0, 1, 2, 3], "a tensor after a write to elements gathered from it")
    x[0:2].fill_(9)
    assert_values(x, [9, 9, 2, 3], "a tensor after a write to a slice of it")


def test_gradients_of_indexing(device: str) -> None:
    """The gradient of gathered elements reaches each element as often as it was gathered."""
    x = torch.ones(4, device=device, requires_grad=True)
    index = torch.tensor([0, 2, 2, -1], device=device)
    (x[index] * torch.arange(1.0, 5.0, device=device)).sum().backward()
    assert x.grad is not None
    assert_values(x.grad, [1, 0, 5, 4], "the gradient")


@needs.feature("memory of its own")
def test_host_tensor_indexed_by_the_device(device: str) -> None:
    """A tensor of the CPU cannot be indexed by one of the device."""
    with raises(RuntimeError, says=r"same device|either on cpu"):
        torch.ones(3)[torch.tensor([1], device=device)]


@needs.devices(2)
def test_indices_of_another_device(device: str) -> None:
    """A tensor cannot be indexed by one of another device."""
    with pytest.raises(RuntimeError):
        torch.ones(3, device=f"{device}:0")[torch.tensor([1], device=f"{device}:1")]
