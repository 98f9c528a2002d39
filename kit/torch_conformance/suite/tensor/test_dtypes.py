"""Every dtype that the device declares: stored, converted, promoted and read back."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance.declaration import Declaration
from torch_conformance.promises import promise
from torch_conformance.suite.tensor._support import (
    DTYPES,
    address,
    assert_close,
    assert_equal,
    assert_same,
    assert_values,
    dtypes,
    each,
    every_dtype,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

PROMOTED = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The dtypes that PyTorch promotes among each other in every operator."""

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


def declared(declaration: Declaration, names: tuple[str, ...]) -> list[torch.dtype]:
    """Those of the dtypes that the device has."""
    return [getattr(torch, name) for name in names if name in declaration.dtypes]


def few(*values: float, dtype: torch.dtype) -> Tensor:
    """A CPU tensor of the values."""
    return torch.tensor(values).to(dtype)


# ---- values ----


def test_dtypes_that_every_device_has(declaration: Declaration) -> None:
    """The device declares float32, int64 and bool, which PyTorch itself makes tensors of."""
    missing = {"float32", "int64", "bool"} - declaration.dtypes
    assert not missing, f"the device does not declare {', '.join(sorted(missing))}"


@promise("tb_device_properties.dtype_mask")
@every_dtype
def test_bits_survive(device: str, dtype: torch.dtype) -> None:
    """Every bit of every value goes to the device and comes back."""
    generator = torch.Generator().manual_seed(1)
    if dtype is torch.bool:
        expected = torch.randint(0, 2, (1000,), generator=generator).bool()
    else:
        count = 1000 * torch.empty(0, dtype=dtype).element_size()
        expected = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).view(dtype)
    there = expected.to(device)
    assert there.dtype is dtype, f"a tensor of {dtype} became one of {there.dtype}"
    assert there.element_size() == expected.element_size(), (
        f"an element of {dtype} has {there.element_size()} bytes, on the CPU {expected.element_size()}"
    )
    assert_equal(there.cpu().view(torch.uint8), expected.view(torch.uint8), f"the bytes of {dtype}")
    assert_equal(there.clone().cpu().view(torch.uint8), expected.view(torch.uint8), f"the bytes of a clone of {dtype}")


@every_dtype
def test_constants(device: str, dtype: torch.dtype) -> None:
    """torch.zeros, ones, full and fill_ write every element of every dtype."""
    for size in (1, 7, 257):
        x = torch.zeros(size, dtype=dtype, device=device)
        assert_same(x, torch.zeros(size, dtype=dtype), device, f"zeros({size})")
        assert_same(torch.ones(size, dtype=dtype, device=device), torch.ones(size).to(dtype), device, f"ones({size})")
        assert_same(x.fill_(1), torch.ones(size).to(dtype), device, f"fill_ of {size} elements")
        assert_same(x.zero_(), torch.zeros(size, dtype=dtype), device, f"zero_ of {size} elements")


@every_dtype
def test_item(device: str, dtype: torch.dtype) -> None:
    """``item`` of any element of any dtype gives the value at its place."""
    x = few(0, 1, 1, 0, 1, dtype=dtype).to(device)
    for index, expected in enumerate([0, 1, 1, 0, 1]):
        assert x[index].item() == expected, f"item() of element {index} is {x[index].item()}, not {expected}"
    assert x[1:2].item() == 1, "item() of a slice of one element does not read its element"


@every_dtype
def test_list(device: str, dtype: torch.dtype) -> None:
    """``tolist`` gives the values of any dtype, in the order of the view."""
    x = few(0, 1, 1, 0, 1, 1, dtype=dtype)
    assert x.to(device).view(2, 3).t().tolist() == x.view(2, 3).t().tolist(), (
        f"tolist() of a transposed tensor of {dtype} gives {x.to(device).view(2, 3).t().tolist()}"
    )


# ---- conversions ----


@every_dtype
def test_conversion(device: str, declaration: Declaration, dtype: torch.dtype) -> None:
    """A tensor converted on the device to any other dtype has the values that the CPU's conversion gives."""
    source = few(0.0, 1.0, 1.0, 2.0, 0.5, 3.0, dtype=dtype)
    for target in declared(declaration, DTYPES):
        try:
            expected = source.to(target)
        except RuntimeError:
            continue  # the CPU has no such conversion
        assert_same(source.to(device).to(target), expected, device, f"{dtype} to {target}")


@pytest.mark.parametrize("dtype", dtypes(*INTEGERS))
def test_integers_that_do_not_fit(device: str, declaration: Declaration, dtype: torch.dtype) -> None:
    """An integer that does not fit the dtype it is converted to wraps around."""
    source = torch.tensor([-1, 127, 128, 255, 256, -129, 70_000, -(2**31) - 1]).to(dtype)
    for target in declared(declaration, INTEGERS):
        assert_same(source.to(device).to(target), source.to(target), device, f"{dtype} to {target}")


@pytest.mark.parametrize("dtype", dtypes("float16", "bfloat16", "float32", "float64"))
def test_special_values(device: str, declaration: Declaration, dtype: torch.dtype) -> None:
    """NaN, infinities, the zero with a sign and the greatest numbers survive conversions among floating dtypes."""
    source = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 3.4e38, 65504.0]).to(dtype)
    for target in declared(declaration, ("float16", "bfloat16", "float32", "float64")):
        actual, expected = source.to(device).to(target), source.to(target)
        assert_same(actual, expected, device, f"{dtype} to {target}")
        # By division, which tells the two zeros apart.
        assert (1 / actual.cpu()[3]).item() == -float("inf"), f"{dtype} to {target} loses the sign of a zero"


@pytest.mark.parametrize("dtype", dtypes("float16", "bfloat16", "float32", "float64"))
def test_every_number_is_true_but_zero(device: str, dtype: torch.dtype) -> None:
    """Conversion to bool gives False for zeros only; NaN and the smallest numbers are True."""
    source = torch.tensor([0.0, -0.0, 0.25, -3.0, float("nan"), float("inf")]).to(dtype)
    assert_values(source.to(device).bool(), [False, False, True, True, True, True], f"{dtype} to bool")


CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64", "int": "int32"} | {
    "long": "int64",
    "bool": "bool",
    "char": "int8",
    "byte": "uint8",
    "short": "int16",
    "cfloat": "complex64",
}


@pytest.mark.parametrize(
    "cast", [pytest.param(key, marks=dtypes(name)[0].marks, id=key) for key, name in CASTS.items()]
)
def test_casting_methods(device: str, cast: str) -> None:
    """x.half(), x.long() and the like convert on the device as on the CPU."""
    source = torch.tensor([0.0, 1.5, 3.0])
    assert_same(getattr(source.to(device), cast)(), getattr(source, cast)(), device, cast)


# ---- promotion ----

OPERATORS: dict[str, Callable[[Any, Any], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "divide": torch.true_divide,
    "compare": torch.eq,
    "where": lambda x, y: torch.where(torch.ones(3, dtype=torch.bool, device=x.device), x, y),
    "cat": lambda x, y: torch.cat([x, y]),
}


@pytest.mark.parametrize("dtype", dtypes(*PROMOTED))
@each("operator", OPERATORS)
def test_promotion(
    device: str, declaration: Declaration, dtype: torch.dtype, operator: Callable[[Any, Any], Tensor]
) -> None:
    """The result of two dtypes has the dtype, and the values, that it has on the CPU."""
    one = few(0, 1, 1, dtype=dtype)
    for other_dtype in declared(declaration, PROMOTED):
        other = few(1, 1, 1, dtype=other_dtype)
        expected = operator(one, other)
        if str(expected.dtype).removeprefix("torch.") in declaration.dtypes:
            assert_same(operator(one.to(device), other.to(device)), expected, device, f"{dtype} with {other_dtype}")


@pytest.mark.parametrize("dtype", dtypes(*PROMOTED))
def test_promotion_with_numbers(device: str, declaration: Declaration, dtype: torch.dtype) -> None:
    """A Python number, and a tensor without dimensions, raise the dtype only if they are of a higher kind."""
    x = few(0, 1, 2, dtype=dtype)
    for number in (True, 2, 2.5, 1j):
        if str(torch.result_type(x, number)).removeprefix("torch.") not in declaration.dtypes:
            continue
        try:
            expected = x + number
        except NotImplementedError:  # torch 2.15 has a dtype for bfloat16 + 1j, in which the CPU cannot add
            continue
        assert_same(x.to(device) + number, expected, device, f"{dtype} + {number}")
        assert_same(number + x.to(device), expected, device, f"{number} + {dtype}")
        scalar = torch.tensor(number)
        assert_same(x.to(device) + scalar.to(device), x + scalar, device, f"{dtype} + tensor({number})")


@pytest.mark.parametrize("dtype", dtypes(*INTEGERS, "bool"))
def test_division_of_integers(device: str, dtype: torch.dtype) -> None:
    """Integers divided by ``/`` give floating numbers, and integers by ``//``."""
    x, y = few(1, 3, 6, dtype=dtype), few(1, 2, 4, dtype=dtype)
    assert_same(x.to(device) / y.to(device), x / y, device, f"{dtype} / {dtype}")
    if dtype is not torch.bool:
        assert_same(x.to(device) // y.to(device), x // y, device, f"{dtype} // {dtype}")
        assert_close(x.to(device).float().mean(), x.float().mean(), device, "the mean")


def test_in_place_results_are_not_promoted(device: str) -> None:
    """An in-place operator keeps the tensor's dtype, and raises if its result cannot have it."""
    x = torch.tensor([1, 2], device=device)
    x.add_(torch.tensor([True, True], device=device))
    assert x.dtype is torch.int64, f"adding bool in place makes int64 {x.dtype}"
    halves = torch.tensor([0.5, 0.5], device=device)
    for write in (lambda: x.add_(halves), lambda: x.mul_(halves), lambda: x.mul_(2.5), lambda: x.div_(2), x.sqrt_):
        with pytest.raises(RuntimeError, match="can't be cast"):
            write()
    assert_values(x, [2, 3], "a tensor that an operator refused to write to")


@pytest.mark.parametrize("dtype", dtypes("bool", "uint8", "int8", "int32"))
def test_sums_of_small_integers(device: str, dtype: torch.dtype) -> None:
    """Sums and products of small integers are int64, and do not overflow."""
    x = torch.ones(1000, dtype=dtype, device=device)
    assert x.sum().dtype is torch.int64, f"the sum of {dtype} is {x.sum().dtype}"
    assert x.sum().item() == 1000, f"the sum of 1000 ones of {dtype} is {x.sum().item()}"
    assert x.cumsum(0).dtype is torch.int64, f"the running sum of {dtype} is {x.cumsum(0).dtype}"
    assert x.cumsum(0)[-1].item() == 1000, f"the running sum of 1000 ones of {dtype} ends with {x.cumsum(0)[-1].item()}"


# ---- bits ----

REINTERPRETED = [
    pair
    for pair in itertools.product(("uint8", "int16", "int32", "float16", "float32", "int64", "complex64"), repeat=2)
    if pair[0] != pair[1]
]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(
            getattr(torch, a),
            getattr(torch, b),
            id=f"{a} as {b}",
            marks=[m for n in (a, b) for m in dtypes(n)[0].marks],
        )
        for a, b in REINTERPRETED
    ],
)
def test_reinterpreted_bits(device: str, source: torch.dtype, target: torch.dtype) -> None:
    """A view as another dtype shows the same bytes, and writes through it reach them."""
    expected = torch.arange(64, dtype=torch.uint8).view(source)
    actual = expected.to(device)
    view, wanted = actual.view(target), expected.view(target)
    assert address(view) == address(actual), "a view as another dtype has memory of its own"
    assert (view.shape, view.dtype) == (wanted.shape, target), (
        f"the view has {view.dtype} and shape {tuple(view.shape)}, on the CPU {tuple(wanted.shape)}"
    )
    assert_equal(view.cpu().view(torch.uint8), torch.arange(64, dtype=torch.uint8), f"{source} seen as {target}")
    view[1] = 0
    wanted[1] = 0
    assert_equal(
        actual.cpu().view(torch.uint8), expected.view(torch.uint8), f"{source} after a write through a view as {target}"
    )
