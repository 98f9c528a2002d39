"""Every operator of codegen/kernels/pointwise.yaml against PyTorch's on the CPU.

With TORCH_BACKEND_TEST_EVERY_KERNEL=1 every dtype and layout with every operator; else what one text has in common with
others is tried with some.
"""

import itertools
import math
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, to_device

from codegen import kernel_texts

EVERYTHING = os.environ.get("TORCH_BACKEND_TEST_EVERY_KERNEL") == "1"
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = (torch.int64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.bool)
UNSIGNED = (torch.uint32, torch.uint16, torch.uint64)
# Which show what the others share: loads, stores and rounding.
SHOWN = (
    "add.out",
    "div.out_mode",
    "gelu_backward.grad_input",
    "pow.Tensor_Scalar_out",
    "nan_to_num.out",
    "eq.Scalar_out",
)
ALL_LAYOUTS = ("neg.out", "mul.out", "addcmul.out", "where.self_out", "_prelu_kernel_backward")

# Arguments that are no tensors; the n-th call takes the n-th of each, from the start again where there are fewer.
NUMBERS: dict[str, list[Any]] = {
    "alpha": [1, 2, -3],
    "beta": [1.5],
    "decimals": [2, 0, -1],
    "delta": [1.25],
    "eps": [None, 0.125],
    "exponent": [2, 3, 0.5, -1, -2.0, -0.5, 1.75, 0],
    "input_scale": [0.75],
    "is_result": [False, True],
    "lambd": [0.5],
    "max": [1, None, 2],
    "max_val": [2],
    "min": [-1, 0, None],
    "min_val": [-1],
    "n": [0, 1, 2, 3],
    "nan": [None, 1.5],
    "neginf": [None, -3.0],
    "negative_slope": [0.125],
    "other": [2, 0, -3],
    "posinf": [None, 2.5],
    "reduction": [0, 1, 2],
    "scale": [1.5],
    "self": [2, 3],
    "self_is_result": [False],
    "threshold": [1],
    "value": [2],
    "weight": [0.25, 0.75],
}
VARIANTS = {"approximate": ["none", "tanh"], "rounding_mode": [None, "trunc", "floor"]}


def functional_form(name: str) -> Any:
    """The overload that returns what ``name`` writes."""
    packet, _, overload = name.partition(".")
    operators = getattr(torch.ops.aten, packet)
    named = getattr(operators, overload or "default")
    inputs = [argument for argument in named._schema.arguments if not argument.is_out]
    key = [(argument.name, str(argument.type)) for argument in inputs]
    for candidate in (getattr(operators, each) for each in operators.overloads()):
        if [(argument.name, str(argument.type)) for argument in candidate._schema.arguments] == key:
            return candidate
    raise AssertionError(f"{name} has no functional form")


def is_whole(dtype: torch.dtype) -> bool:
    """Or bool."""
    return not dtype.is_floating_point and not dtype.is_complex


def values_of(dtype: torch.dtype) -> torch.Tensor:
    """What is worth trying, about 20 values."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.3, -0.5, 1.0, -2.5, 20.0, -90.0]
        return torch.complex(*torch.cartesian_prod(*[torch.tensor(parts, dtype=dtype.to_real())] * 2).unbind(1))
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        numbers = [0, 1, 2, 3, 5, 7, 8, 63, 100, limits.max, limits.max - 1, limits.min]
        return torch.tensor(numbers + ([-1, -2, -3, -7, limits.min + 1] if dtype.is_signed else []), dtype=dtype)
    limits = torch.finfo(dtype)
    numbers = [float("nan"), float("inf"), -float("inf"), limits.max, limits.min, limits.tiny / 4, limits.eps]
    numbers += [0.0, -0.0, 0.125, 0.3, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, -3.0, 6.0, -7.25, 20.0, 1e4]
    return torch.tensor(numbers, dtype=dtype)


def tensors_of(count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """``count`` tensors of one shape that between them have all pairs of values."""
    values = values_of(dtype)
    if count > 1 and dtype.is_floating_point:
        # What overflows or loses all digits on the way depends on the order of operations.
        values = values[~values.isfinite() | (values == 0) | ((values.abs() > 1e-6) & (values.abs() < 100))]
    pairs = torch.cartesian_prod(values, values)
    columns = [values] if count == 1 else [pairs[:, 0], pairs[:, 1]]
    while len(columns) < count:
        columns.append(pairs[torch.randperm(len(pairs)), 0])
    size = len(columns[0]) - len(columns[0]) % 2
    return [column[:size].reshape(2, -1).contiguous() for column in columns]


# The CPU's kernels of these divide the smallest number by -1, at which the processor ends the program.
DIVIDING = ("gcd", "lcm", "fmod", "remainder", "div", "floor_divide")


def plain(value: Any) -> Any:
    """Tensors with gaps, for which the CPU takes its plain kernels.

    Comparisons with NaN are false, and its vectorized kernels ask for the other case than plain ones and other devices.
    """
    return torch.stack([value, value], -1)[..., 0] if isinstance(value, torch.Tensor) else value


def special_numbers(argument: Any, form: Any, dtype: torch.dtype) -> list[Any]:
    """What is worth trying for an argument that is a number."""
    if "number" not in str(argument.type) and "float" not in str(argument.type):
        return []
    if dtype.is_complex:
        return [complex(1.5, -0.5), 2j, *([] if argument.name == "exponent" else [complex(1, float("inf"))])]
    if dtype.is_floating_point:
        return [float("nan"), float("inf"), -float("inf"), 0]
    if dtype is torch.bool or form._schema.name.removeprefix("aten::") in DIVIDING:
        return []
    return [torch.iinfo(dtype).max, torch.iinfo(dtype).min]


def calls_of(form: Any, dtype: torch.dtype) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Arguments for some calls that try all values of all arguments."""
    arguments = form._schema.arguments
    tensors = [argument for argument in arguments if "Tensor" in str(argument.type)]
    if form._schema.name in ("aten::complex", "aten::polar"):
        dtype = dtype.to_real()
    data = dict(zip((argument.name for argument in tensors), tensors_of(len(tensors), dtype), strict=True))
    base = form._schema.name.removeprefix("aten::")
    if base in DIVIDING and dtype.is_floating_point:  # remainders of subnormal numbers are wrong on the CPU
        data = {name: x.masked_fill((x.abs() > 0) & (x.abs() < 1e-6), 0.5) for name, x in data.items()}
    if base == "logit_backward" and dtype.is_floating_point:  # only the CPU's vectorized kernel sees the sign of zero
        data["self"] = data["self"] + 0
    if is_whole(dtype) and dtype.is_signed and base in DIVIDING:
        data = {name: tensor.clamp(min=torch.iinfo(dtype).min + 1) for name, tensor in data.items()}
    optional = {argument.name for argument in tensors if "Optional" in str(argument.type)}
    if name := next((name for name in data if name.startswith("grad_out") and dtype.is_floating_point), None):
        data[name] = data[name].nan_to_num(3.0, 7.0, -9.0)
    for name in {"condition", "mask"} & data.keys():
        data[name] = (data[name].real if dtype.is_complex else data[name].double()) > 0
    chosen: dict[str, list[Any]] = {name: [tensor] for name, tensor in data.items()}
    # One of several that may be None is there.
    for index, name in enumerate(sorted(optional)):
        chosen[name] = [data[name], *([None, data[name]] if len(optional) == 1 or index == 0 else [data[name], None])]
    for argument in arguments:
        if argument.name not in chosen:
            named = VARIANTS.get(argument.name) or NUMBERS[argument.name]
            chosen[argument.name] = (
                [int(x) if x else x for x in named] if is_whole(dtype) and argument.name not in VARIANTS else named
            )
    most = max(map(len, chosen.values()))
    calls = [{name: each[i % len(each)] for name, each in chosen.items()} for i in range(most)]
    for argument in arguments:
        calls += [{**calls[0], argument.name: number} for number in special_numbers(argument, form, dtype)]
    if base == "hardtanh":  # else an error, or the CPU's operator in versions of PyTorch that raise none
        calls = [taken for taken in calls if not taken["min_val"] > taken["max_val"]]
    for taken in calls:
        positional = [taken[argument.name] for argument in arguments if not argument.kwarg_only]
        yield positional, {argument.name: taken[argument.name] for argument in arguments if argument.kwarg_only}


def compare(form: Any, positional: list[Any], keywords: dict[str, Any], dtype: torch.dtype) -> None:
    """Nothing to compare if the CPU refuses the call: the device may take it."""
    limit = LIMITS.get(dtype, 0)
    rounds_as_cpu = form is torch.ops.aten.nan_to_num.default or keywords.get("rounding_mode") == "trunc"
    # The CPU's kernels round in between, each in its own way.
    in_float = dtype in (torch.float16, torch.bfloat16) and not rounds_as_cpu
    given = [plain(as_float(each) if in_float else each) for each in positional]
    try:
        expected = form(*given, **keywords)
    except (RuntimeError, NotImplementedError, ValueError):
        return
    result = form(*to_device(positional), **keywords)
    for got, wanted in zip(as_tuple(result), as_tuple(expected), strict=True):
        wanted = wanted.to(got.dtype) if in_float else wanted
        if got.is_complex():
            compare_parts(got.cpu(), wanted, limit)
            continue
        torch.testing.assert_close(got.cpu(), wanted, rtol=limit, atol=limit, equal_nan=True)


def compare_parts(got: torch.Tensor, wanted: torch.Tensor, limit: float) -> None:
    """Each part is as the CPU's, in which rounding of the other is."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    ours, theirs = torch.view_as_real(got.resolve_conj()), torch.view_as_real(wanted.resolve_conj())
    near = (ours - theirs).abs() <= limit * (1 + theirs.abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True))
    same = (ours == theirs) | (ours.isnan() & theirs.isnan()) | near
    assert same.all(), list(zip(got[~same.all(-1)], wanted[~same.all(-1)], strict=True))[:5]


def as_float(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


LIMITS = {
    torch.complex64: 1e-4,
    torch.complex128: 1e-10,
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
}
TABLE = kernel_texts.pointwise_table()


def classes_of(value: Any) -> set[str]:
    """What an entry has expressions for."""
    if not isinstance(value, dict):
        return {"floating", "integral"}
    each = value.values() if all("=" in key for key in value) else [value]
    return {name for expressions in each for key in expressions for name in key.split()}


def cases() -> Iterator[Any]:
    for name, value in TABLE.items():
        all_dtypes = {FLOATS: 1, WHOLE: 2, UNSIGNED: 1, COMPLEX: 1}
        classes = {FLOATS: "floating", WHOLE: "integral", UNSIGNED: "integral", COMPLEX: "complex"}
        dtypes = [
            dtype
            for some, shown in all_dtypes.items()
            if classes[some] in classes_of(value)
            for dtype in some[: None if EVERYTHING or name in SHOWN else shown]
        ]
        yield from (pytest.param(name, dtype, id=f"{name}-{str(dtype)[6:]}") for dtype in dtypes)


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_every_value(name, dtype):
    form = functional_form(name)
    for positional, keywords in calls_of(form, dtype):
        compare(form, positional, keywords, dtype)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "every other": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "three dimensions": lambda x: x.reshape(2, -1, 2).transpose(0, 2),
    "repeated": lambda x: x[:1].expand_as(x),
    "one row each": lambda x: x[:, :1].expand_as(x),
    "a number": lambda x: x[1, 3],
    "empty": lambda x: x[:, :0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(
            (name, torch.float32)
            for name in (TABLE if EVERYTHING else ALL_LAYOUTS)
            if "floating" in classes_of(TABLE[name])
        ),
        *((name, torch.complex64) for name in ALL_LAYOUTS if "complex" in classes_of(TABLE[name])),
    ],
)
def test_every_layout(check, name, dtype, layout):
    form = functional_form(name)
    positional, keywords = next(calls_of(form, dtype))
    if form._schema.arguments[0].alias_info is not None and layout in ("repeated", "one row each"):
        positional[0] = positional[0].clone()  # what is written must not overlap with itself
        layout_of = [lambda x: x, *[LAYOUTS[layout]] * len(positional)]
    else:
        layout_of = [LAYOUTS[layout]] * len(positional)
    if dtype.is_complex:  # infinities depend on the order of operations
        positional = [
            x.where(x.isfinite(), 0.5) if isinstance(x, torch.Tensor) and x.is_complex() else x for x in positional
        ]
    arranged = [
        arrange(each) if isinstance(each, torch.Tensor) else each
        for arrange, each in zip(layout_of, positional, strict=False)
    ]
    check(form, *arranged, rtol=2e-5, atol=2e-5, **keywords)
    if layout not in ("three dimensions", "empty") and sum(isinstance(each, torch.Tensor) for each in arranged) > 1:
        mixed = [each if i == 0 else other for i, (each, other) in enumerate(zip(arranged, positional, strict=True))]
        if layout != "a number" or form._schema.arguments[0].alias_info is None:
            check(form, *mixed, rtol=2e-5, atol=2e-5, **keywords)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("count", [16383, 16384, 20007])
def test_many_elements(check, count, dtype):
    x = torch.randint(0, 9, (count + 1,), generator=torch.Generator().manual_seed(0)).to(dtype)
    for start in (0, 1):
        check(lambda x, i=start: x[i:] * x[i:], x, exact=True)
        check(lambda x, i=start: x[i : i + count] == x[-1:], x, exact=True)
        check(lambda x, i=start: x[i:].to(torch.bfloat16), x, exact=True)
        check(lambda x, i=start: x[i:].to(torch.float64), x, exact=True)
        check(lambda x, i=start: torch.where(x[i:] > 3, x[i:], x[:1]), x, exact=True)
        check(lambda x, i=start: x[i:].mul_(x[:1].clone()), x, exact=True)
        if dtype.is_floating_point:
            check(lambda x, i=start: x[i:].relu_() + 0.5, x, exact=True)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize(("width", "start"), [(64, 0), (64, 1), (63, 0), (8, 16)])
def test_many_rows(check, dtype, width, start):
    """Operands that are repeated or have gaps between their rows, of sizes and at places for vectors and others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 9, (4, 3, 200, 96), generator=generator).to(dtype)
    row, column = x[0, 0, 0].clone(), x[0, 0, :, :1].clone()
    part = slice(start, start + width)
    check(lambda x, row: x[..., part] * row[part], x, row, exact=True)
    check(lambda x, row: x[..., part].contiguous() + row[:width], x, row, exact=True)
    check(lambda x, row: row[part] == x[..., part], x, row, exact=True)
    check(lambda x, column: x[..., part] * column, x, column, exact=True)
    check(lambda x, row, column: torch.where(x[..., part] > 3, row[part], column), x, row, column, exact=True)
    check(lambda x, row: x.clone()[..., part].mul_(row[part]), x, row, exact=True)
    check(lambda x, row: x[:, :, ::2, part] * row.to(torch.float64)[part], x, row, exact=True)
    check(lambda x, row: (x[:, 1:, :, part].to(torch.bfloat16) + row[part]).clone(), x, row, exact=True)
    check(lambda column: column.expand(4, 3, 200, width).contiguous(), column, exact=True)


COMPLEX_CALLS = {
    "with real tensors": lambda z, x: (z + x, x * z, x - z.conj(), z / x, torch.where(x > 0, z, x)),
    "with whole numbers": lambda z, x: (z * x.long(), z + (x > 0), z == x.long(), z**2),
    "with numbers": lambda z, x: (z * 2, 1j - z, z / (1 - 2j), x * 1j, x + (2 - 1j), z == 1j, z**1.5, 2.0**z),
    "with tensors of no dimension": lambda z, x: (z * x[0, 0], x * z[0, 0], z.to(torch.complex64) + z[0, 0]),
    "of conjugates": lambda z, x: (z.conj() * z, z.mT.conj() + z.mT, z.conj().imag * 2, (z - z.conj()).imag.neg()),
    "in place": lambda z, x: (z.clone().mul_(x), z.clone().conj().add_(z), z.clone().div_(2j), z.clone().neg_()),
    "filled": lambda z, x: (
        *(torch.full_like(z, 2 - 1j), z.clone().fill_(1j), z.clone().real.fill_(3), z.clone().conj().fill_(1j)),
        *(z.masked_fill(x > 0, 1 - 2j), torch.zeros_like(z), z.mT.clone().fill_(2j), torch.ones_like(z)),
    ),
    "of parts": lambda z, x: (z.real * x, z.imag + x, torch.complex(x, x + 1), torch.view_as_real(z) * 2),
    "made of reals": lambda z, x: (torch.polar(x, x + 1), torch.view_as_complex(x.reshape(-1, 2)) * 2, x.to(z.dtype)),
    "answers": lambda z, x: (z.isnan(), z.isinf(), z.isfinite(), z.bool(), torch.isclose(z, z + 1e-9), z != z.conj()),
    "sizes": lambda z, x: (z.abs(), z.angle(), z.sgn(), (z * 1e30).abs() / 1e30),
}


@pytest.mark.filterwarnings("ignore:.*discards the imaginary part")
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", COMPLEX_CALLS)
def test_complex_calls(check, name, dtype):
    z = torch.randn(4, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x = torch.randn(4, 6, dtype=dtype.to_real(), generator=torch.Generator().manual_seed(1)) * 3
    check(lambda z, x: tuple(part.resolve_conj() for part in COMPLEX_CALLS[name](z, x)), z, x)


def test_zeros_of_complex_differences():
    z = torch.tensor([complex(0.25, -0.0), complex(-0.0, 0.5), complex(-1, 0)] * 6)
    for left, right in ((z, 1), (z, z), (z, z.conj().resolve_conj()), (z[:1], z[1:2])):
        expected = left - right
        actual = (left.to(DEVICE) - (right.to(DEVICE) if isinstance(right, torch.Tensor) else right)).cpu()
        assert torch.equal(torch.view_as_real(actual).signbit(), torch.view_as_real(expected).signbit())


def test_signs_of_the_smallest_complex_numbers():
    """Of which one is infinitely many times as large; the CPU's plain kernel multiplies by that."""
    z = torch.complex(torch.tensor([1e-40, -1e-40, 3e-41, 0.0]), torch.tensor([0.0, 2e-40, -1e-40, 1e-45]))
    torch.testing.assert_close(z.to(DEVICE).sgn().cpu(), z.to(torch.complex128).sgn().to(z.dtype))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("function", [torch.log, torch.log2, torch.log10])
def test_logarithms_of_the_smallest_and_largest_complex_numbers(check, function, dtype):
    limits = torch.finfo(dtype)
    smallest = limits.smallest_normal * limits.eps
    parts = torch.tensor([0.0, smallest, 3 * smallest, limits.tiny, 1, limits.max], dtype=dtype.to_real())
    check(function, torch.complex(parts.repeat(6), parts.repeat_interleave(6)))


def test_the_result_is_rounded_before_it_is_converted(check):
    small = torch.tensor([100, 127, -128], dtype=torch.int8)
    check(lambda x: torch.add(x, x, out=torch.zeros(3, dtype=torch.int64, device=x.device)), small, exact=True)
    half = torch.tensor([1.0, 257.0, 0.1]).bfloat16()
    check(lambda x: torch.add(x, x, alpha=0.01, out=torch.zeros(3, device=x.device)), half, exact=True)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_division_by_zero_does_not_end_the_program(dtype):
    limits = torch.iinfo(dtype)
    numbers = torch.tensor([0, 1, limits.min, limits.max], dtype=dtype)
    pairs = torch.cartesian_prod(numbers, torch.tensor([0, 2 if limits.min == 0 else -1], dtype=dtype))
    x, y = to_device([pairs[:, 0], pairs[:, 1]])
    for results in (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), torch.gcd(x, y)):
        assert results.cpu()[2].item() in (0, 1)  # 1 and 0


WHOLE_CALLS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "and_", "xor", "lt", "ge")},
    "fmod": lambda x, y: torch.fmod(x, y) if isinstance(x, torch.Tensor) else x % y,
    "neg": lambda x, y: -x,
    "invert": lambda x, y: ~x,
    "maximum": lambda x, y: torch.maximum(x, y) if isinstance(x, torch.Tensor) else max(x, y),
    "minimum": lambda x, y: torch.minimum(x, y) if isinstance(x, torch.Tensor) else min(x, y),
    "abs": lambda x, y: abs(x),
    "pow": lambda x, y: x ** (y % 5),
    "rshift": lambda x, y: x >> (y % 16),
    "lshift": lambda x, y: x << (y % 16),
    "gcd": lambda x, y: torch.gcd(x, y) if isinstance(x, torch.Tensor) else math.gcd(x, y),
}


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("name", WHOLE_CALLS)
def test_unsigned_numbers_are_those_modulo_a_power_of_two(name, dtype):
    """Also where the CPU has no kernel."""
    most = torch.iinfo(dtype).max
    pairs = list(
        itertools.product([0, 1, 2, 7, most // 2, most // 2 + 1, most - 1, most], [1, 2, 9, most // 2 + 1, most])
    )
    x, y = (torch.tensor(numbers, dtype=dtype, device=DEVICE) for numbers in zip(*pairs, strict=True))
    wanted = [WHOLE_CALLS[name](*pair) % (most + 1) for pair in pairs]
    assert WHOLE_CALLS[name](x, y).cpu().tolist() == wanted


LONG_VALUES = [
    *((torch.int64, value) for value in (2**62 + 7, -1)),
    *((torch.float64, value) for value in (0.1, math.nan)),
    *((torch.complex64, value) for value in (1 - 2j, complex(math.inf, math.nan))),
    (torch.complex128, 0.1j),
]


@pytest.mark.parametrize(("dtype", "value"), LONG_VALUES, ids=str)
def test_fills_of_more_bytes_than_a_word(check, dtype, value):
    """Which devices have no fill of their own for, unless the words are alike."""
    x = torch.zeros(70, 80, dtype=dtype)
    check(lambda x: (x.clone().fill_(value), x.clone().mT.fill_(value), x.clone()[:, 1:].fill_(value)), x, exact=True)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_numbers_with_others(check, dtype):
    x = torch.tensor([[0, 1, 5], [300, 40000, torch.iinfo(dtype).max]], dtype=dtype)
    check(lambda x: (x * 2.5, x / 2, x.sqrt(), x == 5, x != 300, x < 2.5), x)
    check(lambda x: (x & 255, x | 3, x * 3, x.clone().fill_(7), torch.full_like(x, 9), torch.zeros_like(x)), x)
    check(lambda x: (x == torch.iinfo(x.dtype).max, torch.full_like(x, torch.iinfo(x.dtype).max)), x)
    check(lambda x: x.mT.clone().mul_(x.mT), x)
    # Not every version's CPU chooses among unsigned numbers.
    signed, there = x.view(getattr(torch, str(dtype).removeprefix("torch.u"))), x.to(DEVICE)
    chosen = torch.where(there == 5, there, there[:, :1]).cpu()
    assert torch.equal(chosen.view(signed.dtype), torch.where(signed == 5, signed, signed[:, :1]))


def outcome(function: Callable[..., torch.Tensor], *arguments: Any) -> list[float] | None:
    """None: it raises. So does a kernel that leaves a call to the CPU, as nothing falls back here."""
    try:
        return function(*arguments).cpu().tolist()
    except (RuntimeError, ValueError, OverflowError):
        return None


CONVERTING = {
    "clamp": lambda x, number: x.clamp(min(number, 3), max(number, 3)),
    "clamp_min": lambda x, number: x.clamp_min(number),
    "clamp_max_": lambda x, number: x.clone().clamp_max_(number),
    "hardtanh": lambda x, number: torch.nn.functional.hardtanh(x, min(number, 0), max(number, 1)),
    "threshold": lambda x, number: torch.nn.functional.threshold(x, 3, number),
    "add": lambda x, number: x.add(x, alpha=number),
    "addcmul": lambda x, number: x.addcmul(x, x, value=number),
    # Without zeros: on some processors the CPU's library multiplies a factor by alpha, on others the sum.
    "addmm": lambda x, number: torch.addmm(x, x.expand(5, 5) + 1, x.expand(5, 5) + 1, alpha=number),
    "pow": lambda x, number: x.pow(abs(number)),
    "masked_fill": lambda x, number: x.masked_fill(x > 3, number),
    "index_fill": lambda x, number: x.index_fill(0, torch.tensor([1], device=x.device), number),
    "scatter": lambda x, number: x.scatter(0, torch.tensor([1], device=x.device), number),
    "linspace": lambda x, number: torch.linspace(0, number, 3, dtype=x.dtype, device=x.device),
    "full_like": lambda x, number: torch.full_like(x, number),
    "foreach": lambda x, number: torch._foreach_maximum([x, x], number)[1],
    "eq": lambda x, number: x == number,
    "lt": lambda x, number: x < number,
    "sub": lambda x, number: number - x,
    "bitwise_and": lambda x, number: x & int(number),
}


@pytest.mark.parametrize("number", [-1, -200, 300, 2**15, -(2**31) - 1, 2**40, -1.5, 1e30])
@pytest.mark.parametrize("name", CONVERTING)
def test_numbers_that_do_not_fit_are_as_the_cpu_takes_them(name, number):
    """Refused, wrapped or cut, which differs by operator and, of clamp, by version."""
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.tensor([0, 1, 5, 100, 127], dtype=dtype)
        assert outcome(CONVERTING[name], x.to(DEVICE), number) == outcome(CONVERTING[name], x, number), dtype


FLOATING = {
    **{name: CONVERTING[name] for name in CONVERTING if name not in ("pow", "bitwise_and")},
    "addcdiv": lambda x, number: x.addcdiv(x, x + 1, value=number),
    "baddbmm": lambda x, number: torch.baddbmm(x.expand(1, 5, 5), x.expand(1, 5, 5), x.expand(1, 5, 5), beta=number),
    "constant_pad": lambda x, number: torch.nn.functional.pad(x, (1, 1), value=number),
    "elu": lambda x, number: torch.nn.functional.elu(x, number),
    "fill_": lambda x, number: x.clone().fill_(number),
    "fill_ of a view": lambda x, number: x.repeat(2, 1).t()[::2].fill_(number),
    "foreach_add": lambda x, number: torch._foreach_add([x, x], number)[1],
    "full": lambda x, number: torch.full((3,), number, dtype=x.dtype, device=x.device),
    "hardshrink": lambda x, number: torch.nn.functional.hardshrink(x, number),
    "index_add": lambda x, number: x.index_add(0, torch.tensor([1], device=x.device), x[:1], alpha=number),
    "leaky_relu": lambda x, number: torch.nn.functional.leaky_relu(x, number),
    "lerp": lambda x, number: torch.lerp(x, x, number),
    "logspace": lambda x, number: torch.logspace(0, number, 3, dtype=x.dtype, device=x.device),
    "masked_fill_": lambda x, number: x.clone().masked_fill_(x > 3, number),
    "norm": lambda x, number: torch.linalg.vector_norm(x, abs(number)),
    "scatter_reduce": lambda x, number: x.scatter(0, torch.tensor([1], device=x.device), number, reduce="add"),
    "threshold": lambda x, number: torch.nn.functional.threshold(x, number, 3),
}


@pytest.mark.parametrize("number", [-1e9, 65505, 1e39, -1e39, 65504, float("inf"), float("nan")])
@pytest.mark.parametrize("name", FLOATING)
def test_numbers_beyond_a_floating_dtype_are_as_the_cpu_takes_them(name, number):
    """Refused, or infinite where PyTorch computes with them as they are."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.tensor([0, 1, 5, 100, 127], dtype=dtype)
        ours, theirs = outcome(FLOATING[name], x.to(DEVICE), number), outcome(FLOATING[name], x, number)
        assert (ours is None) == (theirs is None), (dtype, ours, theirs)
        if theirs is not None:
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-2, atol=1e-2, equal_nan=True)


OF_THE_DTYPE = {
    "eq": torch.eq,
    "lt": torch.lt,
    "maximum": torch.maximum,
    "clamp": lambda x, number: x.clamp(max=number),
    "where": lambda x, number: torch.where(x > x[2], x, number),
    "add": torch.add,
    "mul": torch.mul,
    "rsub": lambda x, number: number - x,
    "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "xlogy": torch.xlogy,
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OF_THE_DTYPE)
def test_tensors_of_no_dimension_are_rounded_to_the_dtype_of_the_others(name, dtype):
    """So are numbers, but where PyTorch itself computes with them as they are."""
    function = OF_THE_DTYPE[name]
    floats = [0.1, 1, -3.3, 100, 6e4]
    x = torch.tensor(floats if dtype.is_floating_point else [0, 1, 5, 100, 127], dtype=dtype)
    for number in (0.1, -3.3, 1.0000001) if dtype.is_floating_point else (-3, 300, 70000):
        for wide in (torch.float32, torch.float64) if dtype.is_floating_point else (torch.int32, torch.int64):
            scalar = torch.tensor(number, dtype=wide)
            expected = function(x, scalar)
            limit = 1e-2 if expected.dtype in (torch.float16, torch.bfloat16) else 1e-6 if name == "xlogy" else 0
            for given in (scalar.to(DEVICE), scalar):
                if name == "clamp" and given.device.type == "cpu":
                    continue  # PyTorch takes no tensor of another device
                found = function(x.to(DEVICE), given).cpu()
                torch.testing.assert_close(found, expected, rtol=limit, atol=0, equal_nan=True)


def test_numbers_of_the_host(check):
    x, whole = torch.randn(5), torch.arange(5)
    for function in (lambda x: x + 2, lambda x: 2 - x, lambda x: x // 2, lambda x: x > 1, lambda x: x * 0.5):
        check(function, x)
        check(function, whole)
    check(lambda x, y: x.masked_fill(y > 0, 3), x, x)
    check(lambda x: x.masked_fill_(x > 0, torch.tensor(-1.0, dtype=torch.float64)), x.clone())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_shifts_in_every_form(check, dtype):
    x = torch.tensor([0, 1, 3, 100, 127]).to(dtype)
    for y in (2, 0, 7, torch.tensor([1, 0, 3, 2, 6]).to(dtype), torch.tensor(3)):
        for shift in (operator.lshift, operator.rshift, operator.ilshift, operator.irshift):
            check(shift, x.clone(), y, exact=True)
    for function in (torch.bitwise_left_shift, torch.bitwise_right_shift):
        check(lambda a, function=function: function(a, 2), x, exact=True)
        check(lambda a, function=function: function(5, a), x % 8, exact=True)
        check(lambda a, out, function=function: function(a, 3, out=out), x, torch.zeros(0, dtype=dtype), exact=True)


def test_filling_what_is_not_dense(check):
    check(lambda x: x[:, ::2].fill_(2.5), torch.zeros(4, 6), exact=True)
    check(lambda x: x[:, 1].zero_(), torch.ones(4, 6, dtype=torch.int64), exact=True)
    check(lambda x: x.t()[1:].fill_(x[0, 0].clone()), torch.randn(4, 6), exact=True)


def test_unusable_arguments_are_refused():
    x = torch.zeros(3, device=to_device(torch.zeros(1)).device)
    with pytest.raises(RuntimeError):  # the CPU refuses it, or is not asked
        x.masked_fill_(x.long(), 1.0)
