"""Copies between host and device, within a device and between devices change the bytes that they change on the CPU."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.declaration import Declaration
from torch_conformance.promises import promise
from torch_conformance.suite.tensor._copies import Direction, check_copy, every_direction
from torch_conformance.suite.tensor._support import (
    DTYPES,
    assert_values,
    dtypes,
    each,
    every_dtype,
    numbers,
    raises,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]


@every_direction
@every_dtype
def test_copies_of_every_dtype(device: str, declaration: Declaration, direction: Direction, dtype: torch.dtype) -> None:
    """A copy from a tensor of any dtype into one of any other converts, contiguous or not."""
    for name in DTYPES:
        if name not in declaration.dtypes:
            continue
        target = getattr(torch, name)
        values = torch.tensor([0.0, 1.0, 1.0, 2.0, 0.5, 3.0]).to(dtype)
        try:
            torch.zeros(6, dtype=target).copy_(values)
        except RuntimeError:
            continue  # the CPU has no such conversion
        check_copy(torch.zeros(6, dtype=target), values, direction, device)
        check_copy(torch.zeros(3, 2, dtype=target).t(), values.view(2, 3), direction, device)


@every_direction
@pytest.mark.parametrize("dtype", dtypes("float16", "bfloat16", "float32", "float64"))
def test_copies_of_special_values(device: str, direction: Direction, dtype: torch.dtype) -> None:
    """NaN, infinities, negative zero and the smallest and greatest numbers are copied and converted."""
    values = torch.tensor([float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    check_copy(torch.zeros(5, dtype=dtype), values, direction, device)
    nan = torch.tensor([float("nan")])  # of which bits, only a copy that converts nothing says
    check_copy(torch.zeros(1, dtype=dtype), nan, direction, device, exact=dtype == nan.dtype)


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


SHAPES = ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1))


@promise("tb_kernel 2")
@every_direction
@each("dst", LAYOUTS)
def test_copies_of_every_layout(device: str, direction: Direction, dst: Callable[[Tensor], Tensor]) -> None:
    """A copy from any layout to any other puts every element in its place and nothing in the gaps."""
    values = numbers(3, 4, 5)
    for src, shape, dtype in itertools.product(LAYOUTS.values(), SHAPES, (torch.float32, torch.int64)):
        source = src(values[: shape[0], : shape[1], : shape[2]].contiguous())
        check_copy(dst(torch.full(shape, 7, dtype=dtype)), source, direction, device)


@every_direction
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (1, 5), (1, 1, 1), (3, 1, 5)], ids=str)
def test_copies_that_broadcast(device: str, direction: Direction, shape: tuple[int, ...]) -> None:
    """A smaller source is repeated over its destination, and an expanded source is read as often as it is seen."""
    check_copy(torch.zeros(3, 4, 5), numbers(*shape), direction, device)
    check_copy(torch.zeros(5, 4, 3).transpose(0, 2), numbers(*shape, dtype=torch.int64), direction, device)
    check_copy(torch.zeros(3, 4, 5), numbers(*shape).expand(3, 4, 5), direction, device)


@every_direction
def test_copies_of_channels_last(device: str, direction: Direction) -> None:
    """Copies between channels_last and contiguous images put every pixel in its place."""
    image = numbers(2, 3, 4, 5)
    last = image.clone(memory_format=torch.channels_last)
    for src in (image, last):
        check_copy(torch.zeros(2, 3, 4, 5), src, direction, device)
        check_copy(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), src, direction, device)


@every_direction
def test_copies_of_nothing(device: str, direction: Direction) -> None:
    """A copy without elements is accepted and changes nothing."""
    check_copy(torch.zeros(0), torch.zeros(0), direction, device)
    check_copy(torch.zeros(0, 3), torch.zeros(1, 3), direction, device)
    check_copy(torch.zeros(3, 0).t(), torch.zeros(0, 3, dtype=torch.int64), direction, device)
    check_copy(torch.zeros(5)[2:2], torch.ones(5)[:0], direction, device)


BITS = {"plain": (False, False), "neg": (False, True), "conj": (True, False), "conj neg": (True, True)}


@needs.dtype("complex64")
@every_direction
@each("dst_bits", BITS)
def test_copies_of_conj_and_neg_views(
    device: str, declaration: Declaration, direction: Direction, dst_bits: tuple[bool, bool]
) -> None:
    """A copy between conjugated and negated views gives the numbers that the views show."""

    def view(x: Tensor, bits: tuple[bool, bool]) -> Tensor:
        x = x.conj() if bits[0] else x
        return torch._neg_view(x) if bits[1] else x

    numbers_with_both_parts = torch.complex(numbers(3, 4), numbers(3, 4) + 1)
    for src_bits in BITS.values():
        source = view(numbers_with_both_parts, src_bits)
        targets = [
            (torch.zeros(3, 4, dtype=torch.complex64), source),
            (torch.zeros(4, 3, dtype=torch.complex64).t(), source),
        ]
        if "complex128" in declaration.dtypes:
            targets.append((torch.zeros(3, 4, dtype=torch.complex128), source))
        for target, values in targets:
            check_copy(view(target, dst_bits), values, direction, device, exact=False)
        imaginary = view(torch.zeros(3, 4, 2)[..., 0], (False, dst_bits[1]))
        check_copy(imaginary, source.imag, direction, device, exact=False)


@needs.dtype("uint8")
@every_direction
@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 64, 65, 511, 4097, 65_537, (1 << 20) + 3])
def test_copies_of_odd_sizes_at_odd_offsets(device: str, direction: Direction, size: int) -> None:
    """A copy of any number of bytes between any offsets arrives whole, and no byte beside it changes."""
    source = numbers(size + 16, dtype=torch.uint8)
    for dst_offset, src_offset in ((0, 0), (1, 0), (0, 3), (5, 5), (13, 2)):
        target = torch.zeros(size + 16, dtype=torch.uint8)
        check_copy(target[dst_offset : dst_offset + size], source[src_offset : src_offset + size], direction, device)


@pytest.mark.thorough
@needs.dtype("int32")
@every_direction
def test_copies_of_many_megabytes(device: str, direction: Direction) -> None:
    """A copy of 16 MiB arrives whole: contiguous, transposed, cut out and converted."""
    source = torch.arange(1 << 22, dtype=torch.int32).view(2048, 2048)
    check_copy(torch.zeros(2048, 2048, dtype=torch.int32), source, direction, device)
    check_copy(torch.zeros(2048, 2048, dtype=torch.int32), source.t(), direction, device)
    check_copy(torch.zeros(2048, 1024, dtype=torch.int32), source[:, 512:1536], direction, device)
    check_copy(torch.zeros(2048, 2048), source, direction, device)


def test_shapes_that_do_not_fit(device: str) -> None:
    """A source that cannot be broadcast to its destination raises, and the destination stays as it was."""
    x = torch.zeros(3, 4, device=device)
    for source in (torch.ones(4, 3), torch.ones(4, 3, device=device), torch.ones(2)):
        with raises(RuntimeError, says="must match"):
            x.copy_(source)
    with raises(RuntimeError, says="must match"):
        torch.zeros(3).copy_(torch.ones(2, device=device))
    assert x.sum().item() == 0, "a copy that raised has written to its destination"


@needs.feature("storage")  # by which PyTorch tells that tensors overlap
def test_overlapping_copies_raise(device: str) -> None:
    """A copy raises if source and destination overlap, or if several elements of its destination share a place."""
    x = torch.arange(6.0, device=device)
    for dst, src in ((x[1:], x[:-1]), (x[:-1], x[1:]), (x[:4].view(2, 2), x[1:5].view(2, 2))):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            dst.copy_(src)
    for source in (torch.ones(3), torch.ones(3, device=device)):
        with pytest.raises(RuntimeError, match="single memory location"):
            x[:1].expand(3).copy_(source)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1).expand(3).copy_(x[:3])
    assert_values(x, [0, 1, 2, 3, 4, 5], "a tensor after copies into it that raised")


def test_copies_of_a_tensor_to_itself(device: str) -> None:
    """A tensor can be copied to itself, and one part of it to another part beside it."""
    x = torch.arange(4.0, device=device)
    assert x.copy_(x) is x, "copy_ does not return its destination"
    assert_values(x.copy_(x.view(2, 2).view(4)), [0, 1, 2, 3], "a tensor copied to itself")
    assert_values(x[:2].copy_(x[2:]), [2, 3], "one half copied to the other")


@needs.dtype("complex64")
def test_a_tensor_becomes_its_conjugate(device: str) -> None:
    """A tensor that its own conjugated view is copied to is conjugated."""
    z = torch.tensor([1 + 1j], device=device)
    assert_values(z.copy_(z.conj()), [1 - 1j], "z.copy_(z.conj())")
