"""Every kind of view shows its base's memory, and writes through it reach the base."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import (
    address,
    assert_alike,
    assert_close,
    assert_equal,
    assert_same,
    assert_same_outcome,
    assert_values,
    each,
    evaluate,
    raises,
    tensors_of,
)
from torch_conformance.suite.tensor._views import BASE, COMPLEX, VIEWS

COMPLEX_VIEWS = [key for key, (source, _) in VIEWS.items() if source.is_complex()] + ["view_as_complex"]

stored = needs.feature("storage")

View = tuple[Tensor, Callable[[Tensor], Any]]


@stored
@each("view", VIEWS, complex64=COMPLEX_VIEWS, int32=["view.dtype"])
def test_view(device: str, view: View) -> None:
    """A view shares its base's memory: writes through either are seen in both, as on the CPU."""
    source, take = view
    bases = source.clone(), source.clone().to(device)
    expected, actual = (tensors_of(take(base)) for base in bases)
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        assert_same(one, other, device, f"view {number}")
        shared = one.untyped_storage().data_ptr() == bases[1].untyped_storage().data_ptr()
        assert shared, f"view {number} has memory of its own"
        offset, wanted = one.storage_offset(), other.storage_offset()
        assert offset == wanted, f"view {number} has offset {offset}, on the CPU it has {wanted}"
        for base, part in zip(bases, (other, one), strict=True):
            base.add_(1)
            part.mul_(2)
            part.copy_(part.flip(0))
        assert_same(bases[1], bases[0], device, f"the base after a write through view {number}")
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        assert_same(one, other, device, f"view {number} after writes to its base")


@each("view", {key: VIEWS[key] for key in VIEWS if key not in {"detach", "view.dtype"}}, complex64=COMPLEX_VIEWS)
def test_gradient_through_a_view(device: str, view: View) -> None:
    """The gradient of a view reaches the elements of its base that the view shows."""
    source, take = view
    grads = []
    for where in ("cpu", device):
        leaf = source.clone().to(where).requires_grad_()
        for part in tensors_of(take(leaf * 2)):
            part.mul(part).abs().sum().backward(retain_graph=True)
        assert leaf.grad is not None
        grads.append(leaf.grad)
    assert_close(grads[1], grads[0], device, "the base's gradient")


WRITABLE = {
    "transpose": lambda x: x.transpose(0, 2),
    "slice": lambda x: x[:, ::2, 1:],
    "select": lambda x: x[1],
    "view": lambda x: x.view(4, 6),
    "as_strided": lambda x: x.as_strided((2, 3), (3, 2), 5),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 2),
}


@each("take", WRITABLE)
def test_writes_through_a_view_carry_gradients(device: str, take: Callable[[Tensor], Tensor]) -> None:
    """What is written to a view is part of the base for autograd: the base's gradient reaches what was written."""
    grads = []
    for where in ("cpu", device):
        leaf = BASE.clone().to(where).requires_grad_()
        base = leaf * 1
        take(base).mul_(3)
        (base * base).sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad)
    assert_close(grads[1], grads[0], device, "the base's gradient after a write through a view")


@each("take", WRITABLE)
def test_a_write_through_a_view_counts(device: str, take: Callable[[Tensor], Tensor]) -> None:
    """A write through a view raises the version of its base by one, and a write to the base that of the view."""
    base = BASE.clone().to(device)
    view = take(base)
    assert view._base is base, "the view does not know its base"
    before = base._version
    view.add_(1)
    assert base._version == before + 1, "the base does not know of a write through its view"
    base.add_(1)
    assert view._version == before + 2, "the view does not know of a write to its base"


IN_PLACE = {
    "t_": "x.t_()",
    "transpose_": "x.transpose_(0, 1)",
    "unsqueeze_": "x.unsqueeze_(1)",
    "squeeze_": "x.unsqueeze_(0).squeeze_(0)",
    "swapaxes_": "x.swapaxes_(0, 1)",
    "swapdims_": "x.swapdims_(0, 1)",
    "as_strided_": "x.as_strided_((2, 2), (1, 2))",
    "detach_": "x.detach_()",
}


@stored
@each("code", IN_PLACE)
def test_views_made_in_place(device: str, code: str) -> None:
    """An in-place change of shape or strides returns the same tensor on the same memory."""
    expected, x = (torch.arange(12.0).reshape(3, 4).clone().to(where) for where in ("cpu", device))
    pointer = x.data_ptr()
    assert evaluate(code, x=x) is x, f"{code} returns another tensor"
    assert x.data_ptr() == pointer, f"{code} moves the tensor to other memory"
    assert_same(x, evaluate(code, x=expected), device, code)


STEPS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.transpose(0, -1),
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x.unsqueeze(1),
    lambda x: x.flatten(),
    lambda x: x[:, :1],
    lambda x: x.diagonal(0, 0, -1),
    lambda x: x.squeeze(),
    lambda x: x.reshape(-1, 2),
    lambda x: torch.view_as_real(x) if x.is_complex() and not x.is_conj() else x.real,
    lambda x: x.conj(),
    lambda x: x.imag,
    lambda x: x.narrow(0, 0, 1),
]


@needs.dtype("complex64")
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(indices=st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=5))
def test_chains_of_views(device: str, indices: list[int]) -> None:
    """A write through a view of a view, however many there are, changes the base as on the CPU."""

    def run(where: str) -> Tensor:
        base = COMPLEX.clone().to(where)
        view = reduce(lambda x, index: STEPS[index](x), indices, base)
        view.mul_(3)
        view.fill_(5) if view.numel() < 4 else view.add_(view.clone())
        return base

    assert_same_outcome(run, device, f"the base after writes through a chain of views, steps {indices}")


@stored
def test_addresses_of_views(device: str) -> None:
    """A view's address is its storage's address plus its offset."""
    base = torch.arange(24.0, device=device).view(2, 3, 4)
    for name, view in {"slice": base[1:], "element": base[1, 2, 3], "column": base[:, :, 2]}.items():
        expected = base.untyped_storage().data_ptr() + view.storage_offset() * view.element_size()
        assert view.data_ptr() == expected, f"the address of a {name} is off by {view.data_ptr() - expected} bytes"


def test_reshape_copies_what_cannot_be_viewed(device: str) -> None:
    """``reshape`` gives a view where one exists and a copy otherwise; ``view`` raises where none exists."""
    x = torch.arange(6.0, device=device).view(2, 3)
    assert address(x.reshape(3, 2)) == address(x), "a reshape that could be a view copies"
    flat = x.t().reshape(6)
    assert_values(flat, [0, 3, 1, 4, 2, 5], "a transposed tensor, reshaped")
    flat.fill_(9)
    assert_values(x, [[0, 1, 2], [3, 4, 5]], "a tensor after a write to a copy of it")
    with raises(RuntimeError, says="view size is not compatible"):
        x.t().view(6)


@stored
def test_as_strided_beyond_the_storage_raises(device: str) -> None:
    """A view that reaches beyond its storage raises instead of showing memory of others."""
    x = torch.zeros(6, device=device)
    with raises(RuntimeError, says="out of bounds"):
        x.as_strided((4,), (2,))
    with raises(RuntimeError, says="out of bounds"):
        x.as_strided((2,), (1,), 5)


def test_detached_tensors_share_memory_and_version(device: str) -> None:
    """A detached tensor shares memory and version with its source; ``x.data`` has a version of its own."""
    x = torch.ones(3, device=device, requires_grad=True) * 1
    detached = x.detach()
    assert not detached.requires_grad, "a detached tensor requires a gradient"
    detached.add_(1)
    assert_values(x, [2, 2, 2], "a tensor after a write to it detached")
    assert x._version == 1, f"the version is {x._version} after one write to the detached tensor"
    x.data.add_(1)
    assert_values(x, [3, 3, 3], "a tensor after a write to its data")
    assert x._version == 1, f"the version is {x._version} after a write to x.data, which does not count"


def test_expanded_tensors_show_one_element_everywhere(device: str) -> None:
    """All elements of an expanded dimension are one element: a write to the base changes them all."""
    base = torch.tensor([[1.0], [2.0]], device=device)
    view = base.expand(2, 3)
    assert_alike(view, torch.tensor([[1.0], [2.0]]).expand(2, 3), device, "an expanded tensor")
    base[1] = 7
    assert_equal(view, torch.tensor([[1.0] * 3, [7.0] * 3]), "an expanded tensor after a write to its base")
