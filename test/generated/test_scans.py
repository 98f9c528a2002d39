"""Scans: the result so far, at every element."""

import math

import pytest
import torch
from conftest import values

LIMITS = {
    torch.float64: {"rtol": 1e-7, "atol": 1e-7},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 3e-3, "atol": 3e-3},
}


SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans(check, name):
    x = values(6, 33, 20)
    for dim in range(3):
        check(lambda x, dim=dim: SCANS[name](x, dim), x, rtol=2e-5, atol=1e-5)
    check(lambda x: SCANS[name](x.permute(2, 0, 1)[:, ::2], 2), x, rtol=2e-5, atol=1e-5)
    check(lambda x: SCANS[name](x, 0), torch.tensor([2.0]))
    nan, inf = math.nan, math.inf
    special = torch.tensor([[1, 2, 2, 1], [nan, 1, nan, 2], [-inf, -inf, inf, 1], [inf, -inf, 1, 1], [1, 1, inf, 3.0]])
    for dim in (0, 1):
        check(lambda x, dim=dim: SCANS[name](x, dim), special)
    if name != "logcumsumexp":
        for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
            check(lambda x: SCANS[name](x, 0), torch.tensor([[1, 0, 3], [2, 1, 1], [1, 1, 5]]).to(dtype))
    for dtype, limits in LIMITS.items():
        check(lambda x: SCANS[name](x, 1), values(4, 30, dtype=dtype), **limits)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans_of_complex_numbers(check, name, dtype):
    x = torch.polar(*values(2, 6, 33, 20, dtype=dtype.to_real()).mul(0.1).add(1).unbind())
    for dim in (0, 1, 2):
        check(lambda x, dim=dim: SCANS[name](x, dim), x, rtol=2e-5, atol=1e-5)
        check(lambda x, dim=dim: SCANS[name](x.permute(2, 0, 1)[:, ::2].conj(), dim), x, rtol=2e-5, atol=1e-5)
    check(lambda x: SCANS[name](x, 0), x.flatten(), rtol=1e-4, atol=1e-4)
    check(lambda x: SCANS[name](x, 0), x[0, 0, 0])
    special = x[0, 0, :6].clone()
    special[2] = complex(math.inf, 1) if name == "cumsum" else complex(math.nan, 1)
    check(lambda x: torch.view_as_real(SCANS[name](x, 0)), special)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 127, 129, 1023, 1024, 1025, 9000])
@pytest.mark.parametrize("name", SCANS)
def test_scans_of_every_length(check, name, count):
    x = values(3, count)
    x = x * 0.01 + 1 if name == "cumprod" else x
    nan, inf = math.nan, math.inf
    special = x.clone()
    special[0, count // 2], special[1, count // 3], special[1, count // 2], special[2] = inf, nan, -inf, -inf
    for each in (x, special, x.round()):
        check(lambda x: SCANS[name](x, 1), each, rtol=2e-5, atol=1e-4)
        check(lambda x: SCANS[name](x.t(), 0), each, rtol=2e-5, atol=1e-4)
        check(lambda x: SCANS[name](x, 0), each.t().contiguous(), rtol=2e-5, atol=1e-4)
    wide = values(2, count, 40) * 0.01 + 1
    check(lambda x: SCANS[name](x, 1), wide, rtol=2e-5, atol=1e-4)
    if name != "logcumsumexp":
        whole = torch.randint(-(2**62), 2**62, (2, count), generator=torch.Generator().manual_seed(0))
        check(lambda x: SCANS[name](x, 1), whole, exact=True)
        check(lambda x: SCANS[name](x, 1), whole > 0, exact=True)
        check(lambda x: SCANS[name](x, 1), whole.to(torch.int8), exact=True)


def test_scans_of_nothing(check):
    check(lambda x: x.cumsum(1), torch.empty(3, 0))
    check(lambda x: x.cumsum(1), torch.empty(0, 3))
    check(lambda x: x.cumsum(0), torch.tensor(2.0))
    check(lambda x: x.cumsum(1), torch.rand(40, 1).expand(40, 300))


def test_long_scans(check):
    check(lambda x: x.cumsum(0), torch.rand(100000, generator=torch.Generator().manual_seed(0)))
    check(lambda x: x.cumsum(0, dtype=torch.float64), torch.arange(1000, dtype=torch.int32))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_lines_of_many_parts(check, name):
    """So many that what parts have is added up by groups, and some that are not aligned."""
    x = torch.randint(-9, 9, (600_001,), generator=torch.Generator().manual_seed(0)) * 2 + 1
    for line in (x[1:], x[:-1], x):
        check(lambda x: SCANS[name](x, 0), line, exact=True)
    check(lambda x: SCANS[name](x, 1), x[:-1].reshape(2, -1).to(torch.int32), exact=True)
