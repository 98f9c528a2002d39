"""Copies between host and device, within a device and between devices give what the CPU gives."""

from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytestmark = pytest.mark.usefixtures("backend")


class Direction(NamedTuple):
    """The indices of the devices that hold destination and source; None is the host."""

    dst: int | None
    src: int | None


H2D, D2H, D2D = Direction(0, None), Direction(None, 0), Direction(0, 0)
PEER = Direction(1, 0)
DIRECTIONS = {"H2D": H2D, "D2H": D2H, "D2D": D2D, "peer": PEER, "H2D second": Direction(1, None)}


@pytest.fixture(params=DIRECTIONS.values(), ids=DIRECTIONS)
def direction(request: pytest.FixtureRequest, backend: ModuleType) -> Iterator[Direction]:
    if max(index or 0 for index in request.param) >= backend.device_count():
        pytest.skip("needs two devices")
    yield request.param
    assert backend.current_device() == 0


def place(x: Tensor, index: int | None, name: str) -> Tensor:
    """A tensor like `x`, gaps and strides included, on the device (or the host)."""
    device = "cpu" if index is None else f"{name}:{index}"
    whole = x.untyped_storage()
    storage = torch.UntypedStorage(whole.nbytes(), device=device)
    storage.copy_(whole)
    moved = torch.empty(0, dtype=x.dtype, device=device)
    moved.set_(storage, x.storage_offset(), x.shape, x.stride())
    if x.is_conj():
        moved = moved.conj()
    return torch._neg_view(moved) if x.is_neg() else moved


def memory_of(x: Tensor, dtype: torch.dtype = torch.uint8) -> Tensor:
    """The whole memory of the tensor, gaps included."""
    return torch.empty(0, dtype=dtype).set_(x.untyped_storage().cpu())


def check_copy(
    dst: Tensor, src: Tensor, direction: Direction, name: str, non_blocking: bool = False, exact: bool = True
) -> None:
    """`dst`, `src`: on the host. Copying their likes changes exactly the memory that copying them changes.

    Unless `exact`, zeros are the same whatever their sign: in a neg or conj view both stand for zero.
    """
    to, from_ = place(dst, direction.dst, name), place(src, direction.src, name)
    assert to.copy_(from_, non_blocking=non_blocking) is to
    torch.accelerator.synchronize()
    dst.copy_(src)
    dtype = torch.uint8 if exact else dst.dtype
    case = dst.shape, dst.stride(), dst.dtype, src.stride(), src.dtype
    assert torch.equal(memory_of(to, dtype), memory_of(dst, dtype)), case
    assert torch.equal(memory_of(from_), memory_of(src))


BITS = [(False, False), (False, True), (True, False), (True, True)]  # conj, neg


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 113).reshape(shape).to(dtype)


# ---- dtypes ----


def test_every_pair_of_dtypes(name: str, backend: ModuleType, direction: Direction) -> None:
    dtypes = backend.get_device_properties().dtypes
    for dst, src in product(dtypes, dtypes):
        values = torch.tensor([0.0, 1.0, 1.0, 2.0, 0.5, 3.0]).to(src)
        try:
            torch.zeros(6, dtype=dst).copy_(values)
        except RuntimeError:
            continue  # the CPU has no such conversion
        check_copy(torch.zeros(6, dtype=dst), values, direction, name)
        check_copy(torch.zeros(3, 2, dtype=dst).t(), values.view(2, 3), direction, name)


def test_special_values(name: str, direction: Direction) -> None:
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        check_copy(torch.zeros(6, dtype=dtype), values, direction, name)


# ---- layouts ----

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "inner transposed": lambda x: x.mT.contiguous().mT,
    "rows with gaps": lambda x: torch.nn.functional.pad(x, (0, 3))[..., :-3],
    "planes with gaps": lambda x: torch.nn.functional.pad(x, (0, 0, 0, 2))[:, :-2],
    "every second": lambda x: x.repeat_interleave(2, 2)[..., ::2],
    "offset": lambda x: torch.nn.functional.pad(x, (1, 1))[..., 1:-1],
    "permuted": lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
}


@pytest.mark.parametrize("dst", LAYOUTS)
@pytest.mark.parametrize("src", LAYOUTS)
def test_layouts(name: str, direction: Direction, dst: str, src: str) -> None:
    values = numbers(3, 4, 5)
    for dtype in (torch.float32, torch.int16):
        for shape in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1)):
            target = LAYOUTS[dst](torch.full(shape, 7, dtype=dtype))
            source = LAYOUTS[src](values[: shape[0], : shape[1], : shape[2]].contiguous())
            check_copy(target, source.to(target.dtype) if dtype is torch.float32 else source, direction, name)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (1, 5), (1, 1, 1), (3, 1, 5)])
def test_broadcasting(name: str, direction: Direction, shape: tuple[int, ...]) -> None:
    check_copy(torch.zeros(3, 4, 5), numbers(*shape), direction, name)
    check_copy(torch.zeros(5, 4, 3).transpose(0, 2), numbers(*shape).double(), direction, name)
    check_copy(torch.zeros(3, 4, 5), numbers(*shape).expand(3, 4, 5), direction, name)


def test_shapes_that_do_not_fit(name: str) -> None:
    x = torch.zeros(3, 4, device=name)
    for source in (torch.ones(4, 3), torch.ones(4, 3, device=name), torch.ones(2)):
        with pytest.raises(RuntimeError, match="must match"):
            x.copy_(source)
    with pytest.raises(RuntimeError, match="must match"):
        torch.zeros(3).copy_(torch.ones(2, device=name))
    assert x.sum().item() == 0


def test_zero_size(name: str, direction: Direction) -> None:
    check_copy(torch.zeros(0), torch.zeros(0), direction, name)
    check_copy(torch.zeros(0, 3), torch.zeros(1, 3), direction, name)
    check_copy(torch.zeros(3, 0).t(), torch.zeros(0, 3, dtype=torch.int64), direction, name)


@pytest.mark.parametrize("dst_bits", BITS)
@pytest.mark.parametrize("src_bits", BITS)
def test_conj_and_neg(
    name: str, direction: Direction, dst_bits: tuple[bool, bool], src_bits: tuple[bool, bool]
) -> None:
    def view(x: Tensor, bits: tuple[bool, bool]) -> Tensor:
        x = x.conj() if bits[0] else x
        return torch._neg_view(x) if bits[1] else x

    source = torch.complex(numbers(3, 4), numbers(3, 4) + 1)
    check_copy(view(torch.zeros(3, 4, dtype=torch.complex64), dst_bits), view(source, src_bits), direction, name)
    check_copy(view(torch.zeros(3, 4, dtype=torch.complex128), dst_bits), view(source, src_bits), direction, name)
    check_copy(view(torch.zeros(4, 3, dtype=torch.complex64).t(), dst_bits), view(source, src_bits), direction, name)
    check_copy(view(torch.zeros(3, 4, 2)[..., 0], (False, dst_bits[1])), view(source, src_bits).imag, direction, name)


SIZES = [1, 2, 3, 7, 31, 64, 65, 511, 4097, 65_537, (1 << 20) + 3]


@pytest.mark.parametrize("size", SIZES)
def test_odd_sizes_and_offsets(name: str, direction: Direction, size: int) -> None:
    source = numbers(size + 16, dtype=torch.uint8)
    for dst_offset, src_offset in ((0, 0), (1, 0), (0, 3), (5, 5), (13, 2)):
        target = torch.zeros(size + 16, dtype=torch.uint8)
        check_copy(target[dst_offset : dst_offset + size], source[src_offset : src_offset + size], direction, name)


def test_big(name: str, direction: Direction) -> None:
    source = torch.arange(1 << 22, dtype=torch.int32).view(2048, 2048)
    check_copy(torch.zeros(2048, 2048, dtype=torch.int32), source, direction, name)
    check_copy(torch.zeros(2048, 2048, dtype=torch.int32), source.t(), direction, name)
    check_copy(torch.zeros(2048, 1024, dtype=torch.int32), source[:, 512:1536], direction, name)
    check_copy(torch.zeros(2048, 2048), source, direction, name)


# ---- anything at all ----


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...], written: bool, other: torch.dtype | None = None) -> Tensor:
    """A tensor of this shape with a random dtype, order of dimensions, gaps, offset and bits."""
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64)
    dtype = draw(st.sampled_from(dtypes))
    order = draw(st.permutations(range(len(shape))))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(shape), max_size=len(shape)))
    expanded = () if written else draw(st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=1))
    steps = draw(st.lists(st.sampled_from([1, 1, 2]), min_size=len(shape), max_size=len(shape)))
    stored = [1 if dim in expanded else shape[dim] * steps[dim] + gaps[dim] for dim in order]
    base = numbers(*stored).to(dtype)
    x = base.permute([order.index(dim) for dim in range(len(shape))])
    for dim, step in enumerate(steps):
        x = x.expand(*x.shape[:dim], shape[dim], *x.shape[dim + 1 :]) if dim in expanded else x
        if dim not in expanded:
            x = x.narrow(dim, gaps[dim], shape[dim] * step)[(slice(None),) * dim + (slice(None, None, step),)]
    if x.is_complex() and draw(st.booleans()):
        x = x.conj()
    # The CPU cannot convert a neg view to bool.
    return torch._neg_view(x) if torch.bool not in (x.dtype, other) and draw(st.integers(0, 4)) == 0 else x


@settings(derandomize=True, deadline=None, max_examples=400)
@given(data=st.data(), shape=st.lists(st.integers(0, 5), max_size=4).map(tuple), non_blocking=st.booleans())
def test_any_copy(name: str, data: st.DataObject, shape: tuple[int, ...], non_blocking: bool) -> None:
    directions = [H2D, D2H, D2D] + ([PEER] if torch.accelerator.device_count() > 1 else [])
    direction = data.draw(st.sampled_from(directions))
    source_shape = tuple(1 if data.draw(st.integers(0, 5)) == 0 else size for size in shape)
    dst = data.draw(tensors(shape, written=True))
    src = data.draw(tensors(source_shape, written=False, other=dst.dtype))
    check_copy(dst, src, direction, name, non_blocking, exact=False)


# ---- overlap ----


def test_overlap_raises(name: str) -> None:
    x = torch.arange(6.0, device=name)
    for dst, src in ((x[1:], x[:-1]), (x[:-1], x[1:]), (x[:4].view(2, 2), x[1:5].view(2, 2))):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            dst.copy_(src)
    for source in (torch.ones(3), torch.ones(3, device=name)):
        with pytest.raises(RuntimeError, match="more than one element"):
            x[:1].expand(3).copy_(source)
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.zeros(1).expand(3).copy_(x[:3])
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_copies_to_itself(name: str) -> None:
    x = torch.arange(4.0, device=name)
    assert x.copy_(x) is x
    assert x.copy_(x.view(2, 2).view(4)).tolist() == [0, 1, 2, 3]
    assert x[:2].copy_(x[2:]).tolist() == [2, 3]
    z = torch.tensor([1 + 1j], device=name)
    assert z.copy_(z.conj()).tolist() == [1 - 1j]


# ---- blocking and not ----


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_non_blocking_with_pinned_memory(name: str, size: int) -> None:
    source = torch.arange(float(size)).pin_memory()
    x = source.to(name, non_blocking=True)
    back = torch.zeros(size, pin_memory=True)
    back.copy_(x, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, source)


def test_non_blocking_with_pageable_memory(name: str) -> None:
    source = torch.arange(1000.0)
    x = source.to(name, non_blocking=True)
    source.zero_()
    back = torch.zeros(1000).copy_(x, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, torch.arange(1000.0))


def test_blocking_copies_are_complete(name: str) -> None:
    source = torch.arange(1000.0).pin_memory()
    x = torch.zeros(1000, device=name)
    for round in range(5):
        x.copy_(source)
        source.add_(1)
        back = torch.zeros(1000, pin_memory=True).copy_(x)
        assert torch.equal(back, torch.arange(1000.0) + round)


def test_non_blocking_conversion(name: str) -> None:
    source = torch.arange(12.0).view(3, 4).pin_memory()
    x = torch.zeros(4, 3, dtype=torch.float64, device=name)
    x.copy_(source.t(), non_blocking=True)
    source.zero_()
    back = torch.zeros(3, 4, dtype=torch.int32, pin_memory=True)
    back.copy_(x.t(), non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, torch.arange(12, dtype=torch.int32).view(3, 4))


def test_pinned_memory_is_not_reused_too_early(name: str) -> None:
    x = torch.zeros(20, 1000, device=name)
    for number, row in enumerate(x):
        row.copy_(torch.full((1000,), float(number)).pin_memory(), non_blocking=True)
    assert torch.equal(x.cpu(), torch.arange(20.0)[:, None].expand(20, 1000))


# ---- the ways to ask for a copy ----


def test_to(name: str) -> None:
    x = torch.arange(6.0).view(2, 3)
    y = x.to(name)
    assert y.to(name) is y
    assert y.to(name, copy=True).data_ptr() != y.data_ptr()
    assert y.to(f"{name}:0") is y
    assert y.to(torch.int8).dtype is torch.int8
    assert y.to("cpu", torch.float64).dtype is torch.float64
    assert y.to(torch.zeros(1, dtype=torch.int32)).device.type == "cpu"
    assert x.to(y).device == y.device
    assert torch.equal(y.to("cpu"), x)


def test_strides_after_a_move(name: str) -> None:
    x = numbers(2, 3, 4, 5)
    for view in (x.permute(3, 0, 1, 2), x[:, ::2], x[:1].expand(7, 3, 4, 5), x.to(memory_format=torch.channels_last)):
        moved = view.to(name)
        assert moved.stride() == view.clone().stride()
        assert moved.cpu().stride() == view.clone().stride()
        assert torch.equal(moved.cpu(), view)
        assert moved.to("cpu", memory_format=torch.contiguous_format).is_contiguous()


@pytest.mark.usefixtures("two_devices")
def test_between_devices(name: str, backend: ModuleType) -> None:
    x = numbers(3, 4).to(f"{name}:0")
    y = x.to(f"{name}:1")
    assert y.device.index == 1
    assert torch.equal(y.cpu(), x.cpu())
    assert x.t().to(f"{name}:1", torch.float64).stride() == (1, 4)
    x.copy_(y.add(1))
    assert torch.equal(x.cpu(), y.cpu() + 1)
    with backend.device(1):
        assert torch.equal(x.to(name).cpu(), x.cpu())
        assert x.to(f"{name}:1").device.index == 1
        assert x.clone().device.index == 0


@pytest.mark.usefixtures("two_devices")
def test_gradients_between_devices(name: str) -> None:
    x = torch.ones(3, device=f"{name}:0", requires_grad=True)
    (x.to(f"{name}:1") * torch.arange(3.0, device=f"{name}:1")).sum().backward()
    assert x.grad.device.index == 0
    assert x.grad.tolist() == [0, 1, 2]


def test_gradients_through_copies(name: str) -> None:
    x = torch.ones(3, requires_grad=True)
    (x.to(name) * 2).cpu().sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    y = torch.zeros(2, 3, device=name)
    z = y.clone()
    z.copy_(x.to(name).double())
    z.sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_item_of_every_dtype(name: str, backend: ModuleType) -> None:
    for dtype in backend.get_device_properties().dtypes:
        x = torch.ones(3, device=name).to(dtype) if dtype.is_floating_point else torch.ones(3).to(dtype).to(name)
        assert x[1].item() == 1, dtype


def test_clone(name: str) -> None:
    x = numbers(3, 4).to(name)
    for view in (x, x.t(), x[:, ::2], x[:1].expand(5, 4), x[:0]):
        duplicate = view.clone()
        assert duplicate.stride() == view.cpu().clone().stride() or view.stride(0) == 0
        assert torch.equal(duplicate.cpu(), view.cpu())
        duplicate.fill_(-1)
    assert torch.equal(x.cpu(), numbers(3, 4))
