"""Copies between tensors of random shapes, dtypes, orders of dimensions, gaps and offsets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torch_backend.testing.declaration import Declaration
from torch_backend.testing.suite.tensor._copies import Direction, check_copy
from torch_backend.testing.suite.tensor._support import numbers

pytestmark = pytest.mark.filterwarnings("ignore:Casting complex values to real")

CHOSEN = ("float32", "float64", "bfloat16", "int32", "uint8", "bool", "complex64")


@st.composite
def tensors(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    dtypes: list[torch.dtype],
    written: bool,
    other: torch.dtype | None = None,
) -> Tensor:
    """A tensor of this shape with a random dtype, order of dimensions, gaps, offset and bits."""
    dtype = draw(st.sampled_from(dtypes))
    order = draw(st.permutations(range(len(shape))))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(shape), max_size=len(shape)))
    expanded = () if written else draw(st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=1))
    steps = draw(st.lists(st.sampled_from([1, 1, 2]), min_size=len(shape), max_size=len(shape)))
    stored = [1 if dim in expanded else shape[dim] * steps[dim] + gaps[dim] for dim in order]
    x = numbers(*stored).to(dtype).permute([order.index(dim) for dim in range(len(shape))])
    for dim, step in enumerate(steps):
        if dim in expanded:
            x = x.expand(*x.shape[:dim], shape[dim], *x.shape[dim + 1 :])
        else:
            x = x.narrow(dim, gaps[dim], shape[dim] * step)[(slice(None),) * dim + (slice(None, None, step),)]
    if x.is_complex() and draw(st.booleans()):
        x = x.conj()
    # The CPU cannot convert a neg view to bool.
    return torch._neg_view(x) if torch.bool not in (x.dtype, other) and draw(st.integers(0, 4)) == 0 else x


def check_any_copy(device: str, declaration: Declaration, data: st.DataObject) -> None:
    """One copy that ``data`` chooses."""
    dtypes = [getattr(torch, name) for name in CHOSEN if name in declaration.dtypes]
    directions = [Direction(0, None), Direction(None, 0), Direction(0, 0)]
    if declaration.device_count > 1:
        directions.append(Direction(1, 0))
    direction = data.draw(st.sampled_from(directions))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    source_shape = tuple(1 if data.draw(st.integers(0, 5)) == 0 else size for size in shape)
    dst = data.draw(tensors(shape, dtypes, written=True))
    src = data.draw(tensors(source_shape, dtypes, written=False, other=dst.dtype))
    check_copy(dst, src, direction, device, non_blocking=data.draw(st.booleans()), exact=False)


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(data=st.data())
def test_any_copy(device: str, declaration: Declaration, data: st.DataObject) -> None:
    """A copy between any two tensors of a shape changes the bytes that it changes on the CPU, and no others."""
    check_any_copy(device, declaration, data)
