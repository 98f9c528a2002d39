"""Reductions over any dimensions of tensors of any layout."""

import math

import pytest
import torch
from conftest import DEVICE

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGRAL = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NAN, INF = math.nan, math.inf


def values(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 5, shape, generator=generator).to(dtype)


REDUCTIONS = {
    "sum": lambda x, dim: x.sum(dim),
    "mean": lambda x, dim: x.mean(dim),
    "prod": lambda x, dim: x.prod(dim),
    "amax": lambda x, dim: x.amax(dim),
    "amin": lambda x, dim: x.amin(dim),
    "aminmax": lambda x, dim: tuple(x.aminmax(dim=dim)),
    "max": lambda x, dim: tuple(x.max(dim)),
    "min": lambda x, dim: tuple(x.min(dim)),
    "argmax": lambda x, dim: x.argmax(dim),
    "argmin": lambda x, dim: x.argmin(dim),
    "any": lambda x, dim: x.any(dim),
    "all": lambda x, dim: x.all(dim),
    "nansum": lambda x, dim: x.nansum(dim),
    "count_nonzero": lambda x, dim: x.count_nonzero(dim),
    "var": lambda x, dim: x.var(dim),
    "std": lambda x, dim: x.std(dim, correction=0),
    "var_mean": lambda x, dim: torch.var_mean(x, dim),
    "std_mean": lambda x, dim: torch.std_mean(x, dim, correction=2),
    "norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
}
FLOATING_ONLY = ("mean", "var", "std", "var_mean", "std_mean", "norm")


@pytest.mark.parametrize("dtype", FLOATING + INTEGRAL)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_dtype(check, name, dtype):
    if name in FLOATING_ONLY and not dtype.is_floating_point:
        with pytest.raises(RuntimeError):
            REDUCTIONS[name](values(3, 4, dtype=dtype), 1)
        return
    if name.startswith("arg") and dtype is torch.bool:
        dtype = torch.int32  # the CPU has none of bool
    x = values(7, 45, dtype=dtype)
    # The CPU rounds a product of half numbers at every step.
    limits = {"rtol": 0.03, "atol": 0} if name == "prod" and dtype.itemsize == 2 and dtype.is_floating_point else {}
    check(lambda x: REDUCTIONS[name](x, 1), x, **limits)
    check(lambda x: REDUCTIONS[name](x, 0), x, **limits)


@pytest.mark.parametrize("dtype", FLOATING + INTEGRAL[1:])
@pytest.mark.parametrize("name", ["sum", "nansum", "prod"])
def test_numbers_are_bools_before_they_are_added_as_such(check, name, dtype):
    least = -1 if dtype.is_signed else torch.iinfo(dtype).max  # adds up to nothing with 1
    x = torch.tensor([[1, least], [0, 0], [1, 0], [0.25, 0.25]]).to(dtype)

    def reduce(x, *dim):  # the CPU's nansum of some versions does not take bool, and nothing here is NaN
        return getattr(x, "sum" if name == "nansum" and x.is_cpu else name)(*dim, dtype=torch.bool)

    check(lambda x: reduce(x, 1), x, exact=True)
    check(reduce, x.new_full((40,), 16), exact=True)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers(check, dtype):
    most = torch.iinfo(dtype).max
    x = torch.tensor([[1, 2, 3], [most, most // 2, most // 2 + 1], [0, 7, most - 1], [5, 0, 0]], dtype=dtype)
    for name in ("sum", "prod", "any", "all", "nansum"):
        for dim in (0, 1, -1):
            check(lambda x, name=name, dim=dim: REDUCTIONS[name](x, dim), x, exact=True)
    check(lambda x: (x.sum(), x.sum(0, dtype=torch.float32), x.cumsum(1), x.cumprod(0)), x)
    there = x.to(DEVICE)
    assert there.amax(0).tolist() == [most, most // 2, most - 1]  # the CPU has no kernel
    assert there.amin(1).tolist() == [1, most // 2, 0, 0]
    assert there.max().item() == most
    assert there.argmin(1).tolist() == [0, 1, 0, 1]


def parts_of(x):
    return torch.view_as_real(x) if x.is_complex() else x


OF_COMPLEX = ("sum", "mean", "prod", "any", "all", "count_nonzero", "norm")


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", OF_COMPLEX)
def test_complex_numbers(check, name, dtype):
    x = values(7, 45, 3, dtype=dtype)
    x[2, 3:, 1] = 0
    x[3, 4, 1] = complex(0, 1e-30)
    for dim in (0, 1, -1, (0, 2)) if name != "prod" else (0, 1, -1):
        check(lambda x, dim=dim: REDUCTIONS[name](x, dim), x)
        check(lambda x, dim=dim: REDUCTIONS[name](x.mT.conj(), dim), x)
    check(lambda x: REDUCTIONS[name](x.sum(), 0), x)
    check(
        lambda x: REDUCTIONS[name](x * 0.01 + 1, None) if name != "prod" else (x * 0.01 + 1).prod(),
        x,
        rtol=1e-4,
        atol=0,
    )
    special = torch.tensor([complex(NAN, 1), complex(1, NAN), complex(INF, 1), complex(0, -INF), 0, 1j], dtype=dtype)
    for row in special[:, None]:
        check(lambda x: parts_of(REDUCTIONS[name](x, 0)), torch.cat([row, x[0, :2, 0]]))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_complex_numbers_become_real_before_they_are_reduced(check, name):
    x = values(5, 7, dtype=torch.complex64)
    check(lambda x: getattr(x, name)(1, dtype=torch.float64), x)
    check(lambda x, out: getattr(torch, name)(x, 0, out=out), x, torch.empty(getattr(x, name)(0).shape))


@pytest.mark.parametrize("size", [33, 4097, 1 << 18])
def test_long_complex_numbers(check, size):
    x = torch.polar(torch.ones(size), values(size))
    check(torch.sum, x, rtol=1e-4, atol=1e-2)
    check(torch.prod, x, rtol=1e-3, atol=1e-3)
    check(lambda x: x.reshape(1, -1).expand(3, -1).mean(1), x, rtol=1e-4, atol=1e-4)
    check(torch.linalg.vector_norm, x)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.permute(2, 0, 1),
    "strided": lambda x: x[::2, 1:, ::3],
    "expanded": lambda x: x[:1].expand(9, -1, -1),
    "long": lambda x: x.reshape(2, -1, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_every_layout(check, layout, dim):
    x = LAYOUTS[layout](values(20, 30, 78).abs())
    check(lambda x: x.sum(dim), x)
    check(lambda x: x.sum(dim, keepdim=True), x)
    check(lambda x: x.var(dim), x)
    if isinstance(dim, int):
        check(lambda x: tuple(x.max(dim, keepdim=True)), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_over_everything(check, layout):
    x = LAYOUTS[layout](values(20, 30, 78).round())
    for function in (torch.sum, torch.mean, torch.max, torch.min, torch.argmax, torch.argmin, torch.any, torch.all):
        check(function, x)
    for function in (torch.aminmax, torch.std_mean, torch.norm, torch.count_nonzero):
        check(lambda x, function=function: function(x), x)
    check(torch.prod, x * 0.0001 + 1, rtol=1e-4, atol=0)


@pytest.mark.parametrize("order", [0, 1, 2, 3.5, INF, -INF, -1])
def test_norms(check, order):
    x = values(33, 70).abs() + 0.5
    for dim in (0, 1, None):
        check(lambda x, dim=dim: torch.linalg.vector_norm(x, order, dim), x)
        check(lambda x, dim=dim: torch.linalg.vector_norm(torch.polar(x, x), order, dim), x)
    check(lambda x: torch.linalg.vector_norm(x, order, 1), torch.tensor([[1e30], [-1e-30], [NAN], [-INF], [0.0]]))
    check(lambda x: torch.norm(x, order, 1, dtype=torch.float64), x)
    check(lambda x: torch.linalg.vector_norm(x, order, dtype=torch.float32), x.bfloat16())


def without_mean(result):
    return (
        result[0]
        if isinstance(result, tuple) and type(result) is tuple and result[0].dtype == result[1].dtype
        else result
    )


@pytest.mark.parametrize("name", [name for name in REDUCTIONS if name not in ("norm", "aminmax")])
def test_nan_infinities_and_ties(check, name):
    x = torch.tensor(
        [
            [1, NAN, 3, NAN],
            [INF, 2, INF, -1],
            [-INF, -INF, -INF, -INF],
            [0, 0, 0, 0],
            [5, 5, NAN, INF],
            [INF, -INF, 1, 2],
        ]
    )
    for source in (x, x.t().contiguous(), x.repeat(1, 40), x.repeat(30, 1)):
        for dim in (0, 1):
            # The mean of infinities depends on where they are in Welford's algorithm, which the CPU uses there.
            check(lambda x, dim=dim: without_mean(REDUCTIONS[name](x, dim)), source)


def test_first_of_equals_over_everything_is_in_the_order_of_places(check):
    x = torch.zeros(40, 50)
    x[7, 30] = x[9, 2] = 1
    check(torch.argmax, x)
    check(torch.argmax, x.t())
    check(torch.argmin, x.t() * -1)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096, 32769, 1 << 21])
def test_long_sums(check, size):
    x = torch.rand(size, generator=torch.Generator().manual_seed(1))
    check(torch.sum, x)
    check(torch.var, x + 1000, rtol=1e-4, atol=0) if size > 1 else None
    check(lambda x: x.reshape(1, -1).argmax(1), x)
    check(torch.sum, x.bfloat16())


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 33, 64, 65, 512, 513, 1025, 2048, 2049, 5000])
def test_rows_of_every_length(check, count):
    x = values(37, count).round()
    x[5, count // 2] = NAN
    x[6] = -INF
    for name in ("sum", "amax", "argmax", "argmin", "max", "any"):
        check(lambda x, name=name: REDUCTIONS[name](x, 1), x)
        check(lambda x, name=name: REDUCTIONS[name](x.reshape(37, 1, -1).expand(37, 2, -1), (0, 2)[1]), x)
    check(lambda x: x.reshape(-1)[: 36 * count].reshape(6, 6, count).transpose(0, 1).sum((1, 2)), x.nan_to_num(0, 0, 0))
    check(lambda x: x.sum(1), x.nan_to_num(0, 0, 0).to(torch.int8))


@pytest.mark.parametrize("shape", [(70000, 2), (2, 70000), (300, 1000), (3, 40000, 5), (1000, 3, 100)])
def test_long_columns(check, shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    for dim in range(len(shape)):
        check(lambda x, dim=dim: x.sum(dim), x)
        check(lambda x, dim=dim: x.argmax(dim), x)
    check(lambda x: x.sum((0, len(shape) - 1)), x)


def test_numbers_and_dtypes(check):
    one = torch.tensor(3.0)
    for function in (torch.sum, torch.max, torch.argmax, torch.any, torch.std_mean, torch.norm):
        if function is not torch.std_mean:
            check(function, one)
    check(lambda x: x.sum(-1), one)
    check(lambda x: tuple(x.max(0)), one)
    check(lambda x: x.sum(1, dtype=torch.float64), values(5, 6, dtype=torch.int16))
    check(lambda x: x.mean(1, dtype=torch.float32), values(5, 6, dtype=torch.int64))
    check(lambda x: x.sum(dtype=torch.int32), values(5, 6) * 10)
    check(lambda x: x.prod(dtype=torch.float64), values(5, 6))
    check(lambda x: x.any(()), values(5, 6))
    check(lambda x: (x.sum(0), x.argmax(0), x.std(0)), values(3001, 3).mul(4).round())
    check(lambda x, out: torch.sum(x, 1, out=out), values(5, 6), torch.empty(5))
    check(lambda x, out: torch.sum(x, 0, out=out), values(5, 6), torch.empty(12)[::2])


def test_products_of_vectors(check):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, *COMPLEX):
        x, y = values(1000, dtype=dtype), values(1000, dtype=dtype).flip(0)
        check(torch.dot, x, y)
    check(torch.vdot, values(999), values(1998)[::2])
    check(torch.trace, values(30, 41))
    check(torch.trace, values(30, 41, dtype=torch.complex64))
    check(torch.trace, values(30, 41, dtype=torch.int32).t())


def test_a_largest_complex_number_has_its_own_size() -> None:
    """Gradients of the maximum norm look for the elements that have it."""
    x = torch.randn(1000, 5, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert torch.equal(torch.linalg.vector_norm(x, float("inf"), 1), x.abs().amax(1))


def distances_in_rows(x, y, p):
    return torch.nn.functional.pdist(x, p)


ORDERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)


@pytest.mark.parametrize(
    ("distance", "p"),
    # The largest of a few numbers is one of them to the CPU's cdist, and NaN of more.
    [*((each, p) for each in (torch.cdist, distances_in_rows) for p in ORDERS), (distances_in_rows, math.inf)],
)
def test_gradients_of_distances_from_what_is_no_number(check, distance, p):
    x, y = torch.randn(4, 5), torch.randn(3, 5)
    x[1, 2] = torch.nan

    def gradient(x, y):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(distance(x, y, p).nan_to_num().sum(), x)[0]

    check(gradient, x, y)
