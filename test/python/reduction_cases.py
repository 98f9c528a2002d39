"""What reductions give, computed by torch: numbers of less than four bytes are added as floats and rounded once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch

from torch_backend.abi import TORCH_DTYPES, Reduction

_COMPUTED: dict[Reduction, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Reduction.SUM: torch.add,
    Reduction.PRODUCT: torch.mul,
    Reduction.MIN: torch.minimum,
    Reduction.MAX: torch.maximum,
    Reduction.AVERAGE: torch.add,
}
_SMALL, _LARGE = 1237, 30_011  # numbers: one message, and blocks that ranks share
_NOT_ADDED_BY_TORCH = ("uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Case:
    """One reduction, and the tensors of all ranks."""

    dtype: str
    reduction: Reduction
    count: int
    inputs: list[torch.Tensor]
    expected: torch.Tensor

    @property
    def code(self) -> tuple[int, int]:
        """DLPack's code and bits."""
        return TORCH_DTYPES[self.dtype]

    def __str__(self) -> str:
        return f"{self.reduction.name} of {self.count} {self.dtype}"


def stored(tensor: torch.Tensor) -> bytes:
    """The tensor's memory."""
    return bytes(tensor.view(torch.uint8).numpy())


def differences(data: bytes, expected: torch.Tensor) -> int:
    """How many numbers in a tensor's memory are others than expected: there is one zero, and one NaN."""
    actual = torch.frombuffer(bytearray(data), dtype=expected.dtype)
    if expected.dtype.is_complex:
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    if expected.is_floating_point():
        actual, expected = actual.to(torch.float64), expected.to(torch.float64)
    return int(((actual != expected) & ~((actual != actual) & (expected != expected))).sum())


def cases(num_ranks: int) -> Iterator[Case]:
    """Every dtype that xcpu and torch can add, every reduction, and some counts."""
    for dtype in TORCH_DTYPES:
        if dtype in _NOT_ADDED_BY_TORCH or dtype.startswith("float8"):  # left to the core
            continue
        for reduction in Reduction:
            if dtype == "bool" and reduction == Reduction.AVERAGE:
                continue
            if dtype.startswith("complex") and reduction not in (Reduction.SUM, Reduction.AVERAGE):
                continue
            for count in (1, _SMALL, _LARGE):
                inputs = [_numbers(dtype, count, rank) for rank in range(num_ranks)]
                yield Case(dtype, reduction, count, inputs, _expected(inputs, reduction))


def _numbers(name: str, count: int, rank: int) -> torch.Tensor:
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(rank)
    if name == "bool":
        return torch.rand(count, generator=generator) < 0.5
    if dtype.is_complex:
        parts = torch.randn(count, 2, generator=generator).to(dtype.to_real())
        return torch.view_as_complex(parts)
    if dtype.is_floating_point:
        # From subnormal numbers to such as overflow.
        scale = torch.exp2(torch.randint(-12, 12, (count,), generator=generator).float())
        return (torch.randn(count, generator=generator) * scale).to(dtype)
    return torch.randint(-120 if dtype.is_signed else 0, 120, (count,), generator=generator).to(dtype)


def _wide(dtype: torch.dtype, reduction: Reduction) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex64 if dtype == torch.complex32 else dtype
    if dtype.is_floating_point:
        return torch.float32 if dtype.itemsize < 4 else dtype
    return torch.int64 if reduction == Reduction.AVERAGE else dtype


def _expected(inputs: list[torch.Tensor], reduction: Reduction) -> torch.Tensor:
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        if reduction in (Reduction.SUM, Reduction.MAX):
            return reduce(torch.logical_or, inputs)
        return reduce(torch.logical_and, inputs)
    total = reduce(_COMPUTED[reduction], [x.to(_wide(dtype, reduction)) for x in inputs])
    if reduction == Reduction.AVERAGE:
        exact = dtype.is_floating_point or dtype.is_complex
        # Parts, because torch divides complex numbers in its own way.
        parts = torch.view_as_real(total) if dtype.is_complex else total
        parts = parts / len(inputs) if exact else torch.div(parts, len(inputs), rounding_mode="trunc")
        total = torch.view_as_complex(parts) if dtype.is_complex else parts
    return total.to(dtype)
