"""Rows in order."""

import pytest
import torch
from conftest import DEVICE

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)
DTYPES += (torch.float32, torch.float64)
NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([[3.0, NAN, -0.0, INF, 0.0, -INF, NAN, 3.0, -1.5], [1.0, 2, 2, 1, 0, 0, -1, 5, 2]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(check, dtype):
    x = (SPECIAL if dtype.is_floating_point else SPECIAL[1:]).to(dtype)
    for descending in (False, True):
        check(lambda a: torch.sort(a, dim=-1, descending=descending, stable=True), x, exact=True)  # noqa: B023
    if dtype != torch.bool:
        check(lambda a: a.topk(3).values, x, exact=True)
    check(lambda a: torch.unique(a, return_inverse=True, return_counts=True), x[-1:], exact=True)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers(check, dtype):
    most = torch.iinfo(dtype).max
    x = torch.tensor([most, 0, most // 2, most // 2 + 1, 7, most - 1, 7, 1] * 5, dtype=dtype)
    for descending in (False, True):
        check(lambda a: torch.sort(a, descending=descending, stable=True), x, exact=True)  # noqa: B023
    check(lambda a: torch.unique(a, return_inverse=True, return_counts=True), x, exact=True)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 33, 100, 1000, 40000, 70001])
def test_sizes(check, size):
    x = (torch.arange(2 * size) * 7919 % 1013).reshape(2, size).float()
    check(lambda a: torch.sort(a, stable=True), x, exact=True)
    check(lambda a: torch.sort(a.t(), dim=0, descending=True, stable=True), x, exact=True)
    check(lambda a: a.topk(min(5, a.shape[1])).values, x, exact=True)
    check(lambda a: a.topk(min(5, a.shape[1]), largest=False).values, x, exact=True)
    check(lambda a: a.kthvalue((a.shape[1] + 1) // 2).values, x, exact=True)
    check(lambda a: a.median(1).values, x, exact=True)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint16, torch.uint32, torch.uint64])
def test_long_rows(check, dtype):
    """Any bits that elements may have, and few different ones, in rows that are sorted by digits."""
    is_wide = dtype.itemsize == 8
    rows, size = (1, 530_001) if is_wide else (2, 70001)
    bits = torch.randint(0, 256, (rows * size * dtype.itemsize,), generator=torch.Generator().manual_seed(0))
    x = (bits % 2 if dtype == torch.bool else bits).to(torch.uint8).view(dtype).reshape(rows, size)
    if dtype.is_floating_point:
        limits = SPECIAL[0].to(dtype)
    else:
        most = 1 if dtype == torch.bool else torch.iinfo(dtype).max
        limits = torch.tensor([0 if dtype == torch.bool else torch.iinfo(dtype).min, 0, most], dtype=dtype)
    few = limits[bits[: rows * size] % limits.numel()].reshape(size, rows).t()
    for descending in (dtype == torch.float64,) if is_wide else (False, True):
        check(torch.sort, x, stable=True, descending=descending, exact=True)
        check(torch.sort, few[:, :70001], stable=True, descending=descending, exact=True)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_first_places_of_long_rows(dtype):
    """Of equal elements the first ones, as a stable sort has them: places too, for which the CPU makes no promise."""
    random = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 256, (3 * 20_003 * dtype.itemsize,), generator=random).to(torch.uint8).view(dtype)
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    few = bits[: bits.numel() // 3 * 2][torch.randint(0, 9, (2, 20_003), generator=random)]
    for x in (bits.view(3, -1), few, torch.zeros(1, 9_001, dtype=dtype)):
        for count, largest in ((1, True), (1, False), (5, True), (700, False), (2_100, True)):
            places = x.sort(dim=1, descending=largest, stable=True).indices[:, :count]
            values, found = x.to(DEVICE).topk(count, 1, largest)
            assert torch.equal(found.cpu(), places)
            assert torch.equal(values.cpu().view(word), x.view(word).gather(1, places))  # NaN's bits too
            if not largest:
                assert torch.equal(x.to(DEVICE).kthvalue(count, 1).indices.cpu(), places[:, -1])


def test_dimensions(check):
    x = torch.randperm(120).reshape(4, 5, 6).float()
    for dim in (0, 1, 2):
        check(torch.sort, x, dim, exact=True)
        check(torch.topk, x, 2, dim, exact=True)
        check(torch.kthvalue, x, 2, dim, True, exact=True)
        check(torch.median, x.transpose(0, 1), dim, exact=True)
    check(torch.sort, torch.tensor(1.0), exact=True)
    for k in (0, 1):
        check(torch.topk, torch.tensor(1.0), k, exact=True)
    check(torch.argsort, x, 1, True, exact=True)
    check(torch.median, x, exact=True)
    check(
        lambda a, v, i: torch.sort(a, 1, out=(v, i)), x, torch.empty(0), torch.empty(0, dtype=torch.int64), exact=True
    )


def test_medians_with_nan(check):
    check(torch.median, SPECIAL, 1, exact=True)
    check(torch.nanmedian, SPECIAL, exact=True)
    check(lambda a: torch.nanmedian(a, 1).values, SPECIAL, exact=True)
    check(torch.median, SPECIAL, exact=True)
    check(torch.nanmedian, torch.tensor([NAN, NAN]), exact=True)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not dtype.is_floating_point])
def test_the_limits_of_whole_numbers_are_numbers(check, dtype):
    """No key of theirs stands for NaN."""
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for row in ([1, 0, 1, high, high], [low, high, low, 1, 0], [high] * 5, [low] * 5, [high, low, high, high, 1]):
        x = torch.tensor([row, row[::-1]]).to(dtype)
        for descending in (False, True):
            check(torch.sort, x, stable=True, descending=descending, exact=True)
        check(torch.unique, x, return_inverse=True, return_counts=True, exact=True)
        check(torch.unique_consecutive, x, return_inverse=True, return_counts=True, exact=True)
        if dtype == torch.bool:
            continue  # the CPU has none of the others
        for largest in (False, True):
            check(lambda a, largest=largest: a.topk(3, largest=largest).values, x, exact=True)
        for k in (1, 3, 5):
            check(lambda a, k=k: a.kthvalue(k).values, x, exact=True)
        for function in (torch.median, torch.nanmedian):
            check(function, x, exact=True)
            check(lambda a, function=function: function(a, 1).values, x, exact=True)


@pytest.mark.parametrize("size", [1, 17, 40000])
def test_unique(check, size):
    x = torch.arange(size) * 7919 % 101
    check(lambda a: torch.unique(a, return_inverse=True, return_counts=True), x, exact=True)
    check(lambda a: torch.unique_consecutive(a, return_inverse=True, return_counts=True), x // 3, exact=True)
    check(lambda a: torch.unique(a), x.reshape(-1, 1).float(), exact=True)


@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_nothing_is_unique(check, function):
    for x in (torch.zeros(0), torch.zeros(0, 3), torch.zeros(2, 0, 3, dtype=torch.int64)):
        for inverse, counts in ((False, False), (True, False), (False, True), (True, True)):
            check(function, x, return_inverse=inverse, return_counts=counts, exact=True)
    check(lambda x: function(x, dim=1, return_inverse=True, return_counts=True), torch.zeros(2, 0, 3), exact=True)
    for x, text in ((torch.zeros(0, 3), "aren't selected"), (torch.zeros(3, 0, 0), "more than one")):
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError, match=text):
                function(x.to(device), dim=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_most_frequent(check, dtype):
    x = (torch.arange(7 * 15 * 3) * 7919 % 5).reshape(7, 15, 3).to(dtype)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            check(torch.mode, x, dim, keepdim, exact=True)
    check(torch.mode, x.transpose(0, 2)[:, ::2], 1, exact=True)
    check(torch.mode, x[0, 0, 0], exact=True)
    check(torch.mode, x[:0], 1, exact=True)
    many = (torch.arange(3 * 2000) * 7919 % 101).reshape(3, 2000).to(dtype)
    check(lambda a: a.mode(1).values, many, exact=True)
    check(
        lambda a, v, i: torch.mode(a, out=(v, i)),
        x,
        torch.zeros(0, dtype=dtype),
        torch.zeros(0, dtype=torch.int64),
        exact=True,
    )
    for device in ("cpu", DEVICE):
        with pytest.raises(IndexError, match="Expected reduction dim 0 to have non-zero size"):
            x[:0].to(device).mode(0)


def test_the_least_of_the_most_frequent(check):
    for row in ([INF, -INF, 1.0, INF, -INF], [-0.0, 0.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.0]):
        check(torch.mode, torch.tensor(row), exact=True)
