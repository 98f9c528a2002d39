"""Tensors as Python numbers, lists, truths, members of containers and numpy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import each, raises


def test_numbers(device: str) -> None:
    """item(), float(), int(), bool() and use as an index give an element's value."""
    x = torch.arange(4.0, device=device).reshape(2, 2)
    for index in range(4):
        element = x[index // 2, index % 2]
        assert element.item() == index, f"item() of element {index} gives {element.item()}"
        assert float(element) == int(element) == index, (
            f"float() and int() of element {index} give {float(element)} and {int(element)}"
        )
        assert bool(element) is (index != 0), f"bool() of element {index} gives {bool(element)}"
    assert ["a", "b", "c"][torch.tensor(1, device=device)] == "b", "an element does not work as an index"
    assert complex(x[1, 0]) == 2, f"complex() of an element gives {complex(x[1, 0])}"
    with raises(RuntimeError, says="cannot be converted to Scalar"):
        x.item()
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x)


@needs.dtype("complex64")
def test_complex_numbers(device: str) -> None:
    """item() of a conjugated view, and of its imaginary part, gives the conjugated number."""
    x = torch.tensor(1 + 2j, device=device)
    assert x.item() == 1 + 2j, f"item() gives {x.item()}"
    assert x.conj().item() == 1 - 2j, f"item() of a conjugated view gives {x.conj().item()}"
    assert x.conj().imag.item() == -2, f"item() of the imaginary part of a conjugated view gives {x.conj().imag.item()}"


def test_lists_and_iteration(device: str) -> None:
    """tolist() and iteration give rows and elements in order."""
    x = torch.arange(4.0, device=device).reshape(2, 2)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]], f"tolist() gives {x.tolist()}"
    assert [row.tolist() for row in x] == x.tolist(), "iteration gives other rows than tolist()"
    assert len(x) == 2, f"len() gives {len(x)}, not 2"
    assert list(reversed(x.view(4).tolist())) == x.flip(0, 1).view(4).tolist(), "flip and tolist() do not agree"


def test_containers(device: str) -> None:
    """A tensor is found in lists and sets by its identity, and values are found in a tensor."""
    x = torch.arange(4.0, device=device)
    assert 3 in x, "a value that is there is not found"
    assert 4 not in x, "a value that is not there is found"
    assert len({x, x, x.clone()}) == 2, "tensors in a set are not told apart by identity"
    assert {x: "x"}[x] == "x", "a tensor is not found as the key of a dict"


USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy()": lambda x: x.numpy(),
    "asarray": np.asarray,
    "ufunc": lambda x: np.add(x, 1),
}


@needs.feature("memory of its own")
@each("use", USES)
def test_numpy_asks_for_a_copy(device: str, use: Callable[[torch.Tensor], Any]) -> None:
    """Numpy does not get a tensor of the device by itself."""
    x = torch.arange(3.0, device=device)
    with raises(TypeError, says=f"can't convert {device}:0 device type tensor to numpy"):
        use(x)
    assert x.is_cuda or not hasattr(x, "__cuda_array_interface__"), (
        "the tensor pretends to have memory that CUDA libraries can use"
    )


def test_numpy_by_way_of_the_host(device: str) -> None:
    """numpy(force=True) and cpu().numpy() give an array of the values."""
    x = torch.arange(6.0, device=device).view(2, 3).t()
    assert x.numpy(force=True).tolist() == x.cpu().numpy().tolist() == [[0, 3], [1, 4], [2, 5]], (
        "numpy gets other values, or in another order"
    )
    array = np.arange(4, dtype=np.int64).reshape(2, 2).T
    assert torch.from_numpy(array).to(device).tolist() == array.tolist(), (
        "a strided array has other values on the device"
    )


def test_numbers_before_tensors(device: str) -> None:
    """Operators that take a number first give results of the shapes that the CPU's have."""
    x = torch.arange(3.0, device=device)
    found, missing = torch.isin(2, x), torch.isin(5, x)
    assert found.shape == missing.shape == (), f"isin of a number gives tensors of {found.shape} and {missing.shape}"
    assert (found.item(), missing.item()) == (True, False), f"isin of 2 and 5 gives {found.item()}, {missing.item()}"
    assert torch.pow(2, x).tolist() == [1, 2, 4], f"2 to the power of 0, 1, 2 is {torch.pow(2, x).tolist()}"
    assert torch.where(x > 0, 7, x).tolist() == [0, 7, 7], f"where with a number gives {torch.where(x > 0, 7, x)}"
    assert (1 - x).tolist() == [1, 0, -1], f"1 - x gives {(1 - x).tolist()}"


def test_equal(device: str) -> None:
    """torch.equal and torch.allclose tell equal tensors from others, on views too."""
    x = torch.arange(6.0, device=device).view(2, 3)
    assert torch.equal(x, x.t().t()), "torch.equal does not see that a tensor is itself"
    assert torch.equal(x.t(), x.t().contiguous()), "torch.equal is wrong about two layouts of the same values"
    assert not torch.equal(x, x + torch.tensor([0, 0, 1], device=device)), "torch.equal does not see the last column"
    assert torch.allclose(x, x + 1e-9), "torch.allclose does not allow for rounding"
    assert not torch.allclose(x, x + 1), "torch.allclose does not see a difference of one"
