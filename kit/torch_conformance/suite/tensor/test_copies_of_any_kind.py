"""Copies between tensors of random shapes, dtypes, orders of dimensions, gaps and offsets."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torch_conformance import needs
from torch_conformance.declaration import Declaration
from torch_conformance.promises import promise
from torch_conformance.routes import has
from torch_conformance.suite.tensor._copies import Direction, assert_memory, check_copy, describe, place
from torch_conformance.suite.tensor._support import numbers

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


@promise("tb_kernel 2")
@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(data=st.data())
def test_any_copy(device: str, declaration: Declaration, data: st.DataObject) -> None:
    """A copy between any two tensors of a shape changes the bytes that it changes on the CPU, and no others."""
    check_any_copy(device, declaration, data)


@needs.feature("storage")  # in which the gaps lie
@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(data=st.data())
def test_any_new_copy(device: str, declaration: Declaration, data: st.DataObject) -> None:
    """A clone of any tensor, and what it is in another dtype or on the host, has the CPU's numbers and strides."""
    dtypes = [getattr(torch, name) for name in CHOSEN if name in declaration.dtypes]
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    dtype = data.draw(st.sampled_from(dtypes))
    host = data.draw(tensors(shape, dtypes, written=False, other=dtype))
    memory_format = data.draw(st.sampled_from([torch.preserve_format, torch.contiguous_format]))
    there = place(host, 0, device)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "clone": lambda x: x.clone(memory_format=memory_format),
        "to(dtype)": lambda x: x.to(dtype, copy=True, memory_format=memory_format),
        "to('cpu')": lambda x: x.to("cpu", dtype, copy=True, memory_format=memory_format),
    }
    for name, call in calls.items():
        copy, wanted = call(there), call(host)
        case = f"{name} of {describe(host)}, {dtype}, {memory_format}"
        assert describe(copy) == describe(wanted), f"{case} is {describe(copy)}, not {describe(wanted)}"
        assert_memory(copy, wanted, wanted.dtype, case)


@st.composite
def two_views(draw: st.DrawFn) -> tuple[list[int], list[tuple[list[int], int]]]:
    """A shape, and strides and offset of two views of that shape, often alike."""
    shape = draw(st.lists(st.integers(1, 4), max_size=3))
    strides = st.lists(st.sampled_from([1, 2, 3, 4, 8, 13]), min_size=len(shape), max_size=len(shape))
    first = draw(strides)
    second = first if draw(st.integers(0, 2)) else draw(strides)
    return shape, [(first, draw(st.integers(0, 9))), (second, draw(st.integers(0, 9)))]


def check_copy_within(device: str, dtype: torch.dtype, data: st.DataObject) -> None:
    """One copy that ``data`` chooses, between two views of one tensor."""
    shape, views = data.draw(two_views())
    places = [torch.arange(150).as_strided(shape, *view).flatten().tolist() for view in views]
    assume(len(set(places[0])) == len(places[0]))
    host = numbers(150).to(dtype)
    where = host.to(device)
    before = host.clone()
    raised = []
    for x in (host, where):
        try:
            x.as_strided(shape, *views[0]).copy_(x.as_strided(shape, *views[1]))
        except RuntimeError as error:
            raised.append(str(error) if has("torch_backend") else "an error")
    assert raised in ([], raised[:1] * 2), f"{shape}, {views}: {raised}"
    after = where.cpu()
    if places[0] == places[1] or set(places[0]).isdisjoint(places[1]):
        torch.testing.assert_close(after, host, rtol=0, atol=0, msg=lambda text: f"{shape}, {views}: {text}")
        return
    # What is read after it was written is nobody's promise.
    after[places[0]] = before[places[0]] = 0
    torch.testing.assert_close(after, before, rtol=0, atol=0, msg=lambda text: f"{shape}, {views}: {text}")


@needs.feature("storage")  # by which PyTorch tells that tensors overlap
@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(data=st.data())
def test_any_copy_within_a_tensor(device: str, data: st.DataObject) -> None:
    """A copy between two views of a tensor does what it does on the CPU; where they overlap it changes no others."""
    check_copy_within(device, data.draw(st.sampled_from([torch.float32, torch.uint8])), data)
