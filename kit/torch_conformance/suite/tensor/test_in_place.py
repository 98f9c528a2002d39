"""In-place operators write to the tensor they are called on, return it, and raise its version."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import address, assert_close, assert_values, attempt, check_refused, each

IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "add_": lambda x: x.add_(1),
    "add_ tensor": lambda x: x.add_(x),
    "mul_": lambda x: x.mul_(2),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3),
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "clamp_": lambda x: x.clamp_(1, 2),
    "relu_": lambda x: torch.relu_(x),
    "sqrt_": lambda x: x.sqrt_(),
    "lgamma_": lambda x: x.lgamma_(),
    "erfinv_": lambda x: x.erfinv_(),
    "cumsum_": lambda x: x.cumsum_(0),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "lerp_": lambda x: x.lerp_(x * 2, 0.5),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 1], device=x.device), torch.ones(2, device=x.device)),
    "index_copy_": lambda x: x.index_copy_(0, torch.tensor([3], device=x.device), torch.ones(1, device=x.device)),
    "scatter_": lambda x: x.scatter_(0, torch.tensor([2], device=x.device), 7.0),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, torch.tensor([2, 2], device=x.device), x * 2, "sum"),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, -1),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 1, x.flip(0)),
    "index_put_": lambda x: x.index_put_((torch.tensor([1], device=x.device),), torch.tensor(5.0)),
    "put_": lambda x: x.put_(torch.tensor([1], device=x.device), torch.tensor([5.0], device=x.device)),
    "tril_": lambda x: x.view(2, 2).tril_().view(4).mul_(1),
    "renorm_": lambda x: x.view(2, 2).renorm_(2, 0, 1).view(4),
    "floor_divide_": lambda x: x.floor_divide_(2),
    "ne_": lambda x: x.ne_(2),
    "fmod_": lambda x: x.fmod_(2),
    "igamma_": lambda x: x.igamma_(x + 1),
    "nan_to_num_": lambda x: x.nan_to_num_(),
    "polygamma_": lambda x: x.polygamma_(1),
    "dropout_": lambda x: torch.dropout_(x, 0.0, True),
}


@each("change", IN_PLACE)
def test_in_place_operator(device: str, change: Callable[[Tensor], Tensor]) -> None:
    """An in-place operator changes the tensor itself, where it lies, and its version as on the CPU."""
    expected, x = torch.tensor([0.25, 1.0, 2.0, 3.0]), torch.tensor([0.25, 1.0, 2.0, 3.0]).to(device)
    pointer, version = address(x), x._version
    result = change(x)
    change(expected)
    assert result is x or result._base is x, "an in-place operator returns another tensor"
    assert address(x) == pointer, "an in-place operator moves its tensor to other memory"
    rise = x._version - version
    assert rise == expected._version, f"the version rises by {rise}, on the CPU by {expected._version}"
    assert_close(x, expected, device, "the tensor after an in-place operator")


@each("change", IN_PLACE)
def test_elements_that_are_one_and_the_same(device: str, change: Callable[[Tensor], Tensor]) -> None:
    """An in-place operator takes an expanded tensor if it takes it on the CPU, and refuses it otherwise."""
    expected, x = torch.tensor([0.25]), torch.tensor([0.25]).to(device)
    try:
        change(expected.expand(4))
    except RuntimeError:
        check_refused({"in place": lambda: change(x.expand(4))}, "its elements share a place in memory", "")
    else:
        _, error, fallback = attempt(lambda: change(x.expand(4)))
        if error is not None and fallback:
            needs.not_offered(
                f"PyTorch's fallback to the CPU, which serves {fallback}, does not write to shared places"
            )
        assert error is None, f"the CPU takes an expanded tensor: {error}"
        assert_close(x, expected, device, "an element of an expanded tensor after an in-place operator")


def test_in_place_results_reach_every_alias(device: str) -> None:
    """What an in-place operator writes is seen by every tensor on the same memory, laid out as it may be."""
    x = torch.zeros(3, 4, device=device)
    alias, rows = x.view(12), x[1]
    x.t()[1:3].add_(torch.tensor([1.0, 2.0, 3.0], device=device))
    assert_values(alias, [0, 1, 1, 0, 0, 2, 2, 0, 0, 3, 3, 0], "a tensor after a write through its transposed view")
    rows.mul_(10)
    assert_values(x[1], [0, 20, 20, 0], "a row after a write to it")
    assert_values(x.sum(1), [2, 40, 6], "sums of rows after a write to one of them")


def test_what_backward_needs_is_guarded(device: str) -> None:
    """Backward raises if a tensor that it needs was changed in place since."""
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_leaves_are_not_changed_in_place(device: str) -> None:
    """A leaf that requires a gradient cannot be changed in place, but within torch.no_grad."""
    x = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    assert_values(x, [1, 1, 1], "a leaf that could not be changed")
    with torch.no_grad():
        x.add_(1)
    assert_values(x, [2, 2, 2], "a leaf changed within no_grad")


GROWING = {"add": torch.float32, "floor_divide": torch.int64, "logical_xor": torch.bool}


@pytest.mark.parametrize("name", GROWING)
def test_in_place_operators_do_not_grow_their_tensor(device: str, name: str) -> None:
    """An in-place operator raises if its result is larger than its tensor, and so does one that is given it as out=."""
    dtype = GROWING[name]
    x, y = torch.zeros(2, 1, 2, dtype=dtype, device=device), torch.ones(2, 2, dtype=dtype, device=device)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        getattr(x, f"{name}_")(y)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        getattr(torch, name)(x, y, out=x)
    assert_values(x, [[[0, 0]], [[0, 0]]], "a tensor that an operator refused to write to")


def test_inference_mode(device: str) -> None:
    """Tensors made in inference mode hold the right values and take no part in autograd."""
    with torch.inference_mode():
        x = torch.ones(3, device=device)
        x[1:].mul_(2)
    assert x.is_inference(), "a tensor made in inference mode does not say so"
    assert_values(x, [1, 2, 2], "a tensor made in inference mode")
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        x.add_(1)
