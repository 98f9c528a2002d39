"""Comparing what the device made with what the CPU made."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ._tolerances import Tolerance


def compare(
    actual: Any,
    expected: Any,
    device: str,
    tolerance: Tolerance,
    what: str,
    *,
    values: bool = True,
    strides: bool = True,
) -> None:
    """Fail unless the results agree in all that a program can see.

    Args:
        actual, expected: the device's and the CPU's, of any structure.
        device: where tensors have to be.
        tolerance: how far values may differ.
        what: what was compared, the start of messages.
        values: whether values count. Those of random numbers do not.
        strides: whether strides count.
    """
    ours, theirs = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results, on the CPU there are {len(theirs)}"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        which = what if len(ours) == 1 else f"{what}, result {index}"
        if isinstance(other, Tensor):
            assert isinstance(one, Tensor), f"{which} is a {type(one).__name__}, on the CPU a tensor"
            _compare_kind(one, other, device, which)
            if strides:
                _compare_strides(one, other, which)
            if values:
                compare_values(one, other, tolerance, which)
        elif values and isinstance(other, bool | int | float | complex):
            assert type(one) is type(other), f"{which} is a {type(one).__name__}, on the CPU a {type(other).__name__}"
            _close(torch.tensor(one), torch.tensor(other), tolerance, which)


def _compare_kind(one: Tensor, other: Tensor, device: str, which: str) -> None:
    assert one.device == torch.device(device), f"{which} is on {one.device}, expected it on {device}"
    for kind in ("dtype", "shape", "layout", "requires_grad"):
        ours, theirs = getattr(one, kind), getattr(other, kind)
        ours, theirs = (list(ours), list(theirs)) if kind == "shape" else (ours, theirs)
        assert ours == theirs, f"{which} has the {kind} {ours}, on the CPU {theirs}"


def _compare_strides(one: Tensor, other: Tensor, which: str) -> None:
    if other.layout is not torch.strided or other.numel() == 0 or other.is_nested:
        return
    sizes = other.shape
    # The stride of a dimension of one element means nothing.
    ours, theirs = ([s for size, s in zip(sizes, x.stride(), strict=True) if size > 1] for x in (one, other))
    assert ours == theirs, f"{which} has the strides {list(one.stride())}, on the CPU {list(other.stride())}"


def compare_values(one: Tensor, other: Tensor, tolerance: Tolerance, which: str) -> None:
    """Fail unless the values agree."""
    _close(one.detach().cpu(), other.detach(), tolerance, which)


def _close(one: Tensor, other: Tensor, tolerance: Tolerance, which: str) -> None:
    exact = not (other.is_floating_point() or other.is_complex())
    rtol, atol = (0.0, 0.0) if exact else tolerance.of(other)
    torch.testing.assert_close(
        one,
        other,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        check_stride=False,
        msg=lambda text: (
            f"{which} has values that differ from the CPU's by more than rtol {rtol} and atol {atol}.\n{text}"
        ),
    )
