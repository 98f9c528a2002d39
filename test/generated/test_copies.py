"""Copies within a device whose memory the host cannot reach: any strides, any dtypes."""

import itertools

import pytest
import torch

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)
DTYPES += (torch.float32, torch.float64, torch.uint16, torch.uint32, torch.uint64)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES))[::3])
def test_every_dtype_becomes_every_other(check, source, target):
    values = torch.tensor([[0, 1, 2, 3], [4, 5, 100, 127]]).to(source)
    check(lambda x: x.to(target), values, exact=True)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int16, torch.float32, torch.float64, torch.complex64, torch.complex128]
)
def test_strided_copies_keep_bits(check, dtype):
    values = torch.randn(6, 5, 4, 3).to(dtype)
    check(lambda x: x.permute(2, 0, 3, 1).contiguous(), values, exact=True)
    check(lambda x: x[::2, 1:, ::3].contiguous(), values, exact=True)
    check(lambda x: x[:1].expand(6, 5, 4, 3).contiguous(), values, exact=True)
    check(lambda x, y: x[1:4].copy_(y[::2]), values.clone(), values, exact=True)


# Squares of 32 or 64 elements, whole ones and parts, that both sides have neighbours in.
@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    ("sizes", "dims"),
    [
        ((300, 200), (1, 0)),
        ((64, 1024), (1, 0)),
        ((1000, 33), (1, 0)),
        ((65, 4, 129), (2, 1, 0)),
        ((3, 100, 5, 40), (0, 3, 2, 1)),
        ((2, 2, 3, 40, 2, 50), (1, 5, 0, 2, 4, 3)),
    ],
    ids=str,
)
def test_transposed_copies(check, dtype, sizes, dims):
    values = torch.randint(-9, 9, sizes).to(dtype)
    turned = values.permute(dims)
    check(lambda x: x.permute(dims).contiguous(), values, exact=True)
    check(lambda x: x.flip(0).permute(dims).contiguous(), values, exact=True)
    room = torch.ones([*turned.shape[:-1], turned.shape[-1] + 3], dtype=dtype)
    check(lambda y, x: y[..., 1:-2].copy_(x.permute(dims)), room, values, exact=True)
    check(lambda y, x: y.copy_(x[:1].expand(x.shape).permute(dims)), turned.contiguous(), values, exact=True)


# Neighbours that are moved together, of as many bytes as sizes, strides and the place of the first one allow.
@pytest.mark.parametrize("inner", [1, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex64])
def test_rows_that_begin_anywhere(check, dtype, inner):
    index = torch.tensor([3, 0, 5, 5])
    for start in (0, 1, 2, 4, 8, 16):
        values = torch.randint(-100, 100, (start + 6 * 5 * inner,)).to(dtype)

        def rows(x, start=start):
            return x[start:].view(6, 5, inner)

        check(lambda x: rows(x).transpose(0, 1).contiguous(), values, exact=True)
        check(lambda x: rows(x)[::2, 1:4].contiguous(), values, exact=True)
        check(lambda x: rows(x).flip(0), values, exact=True)
        check(lambda x: torch.cat((rows(x), rows(x)), 1), values, exact=True)
        check(lambda x: torch.cat((rows(x), rows(x)[..., :1]), 2), values, exact=True)
        check(lambda x, i: rows(x).index_select(0, i), values, index, exact=True)
        check(lambda x, i: rows(x)[:, i % 5], values, index, exact=True)
        check(lambda x, i: rows(x.clone()).index_copy_(0, i[:3], rows(x)[3:]), values, index, exact=True)


def test_negated_views(check):
    values = torch.randn(4, 3)
    check(lambda x: torch._neg_view(x).contiguous(), values, exact=True)


COMPLEX = [torch.complex32, torch.complex64, torch.complex128]


@pytest.mark.filterwarnings("ignore:.*discards the imaginary part", "ignore:ComplexHalf support")
@pytest.mark.parametrize("source", [torch.bool, torch.int32, torch.float32, torch.float64, *COMPLEX])
@pytest.mark.parametrize("target", [torch.bool, torch.int64, torch.float16, torch.float32, *COMPLEX])
def test_copies_between_complex_and_real(check, source, target):
    values = torch.randn(4, 3, dtype=torch.complex64).mul(10)
    values[0] = torch.tensor([0, 1j, -2])
    values = values.to(source)
    check(lambda x: x.t().to(target), values, exact=True)
    if source not in (torch.bool, torch.complex32):  # which the CPU does not negate
        check(lambda x: torch._neg_view(x.conj()).to(target).resolve_conj().resolve_neg(), values, exact=True)
    check(lambda x: x.conj().to(target).resolve_conj(), values, exact=True)
    check(lambda x: x[::2].conj().clone(), values, exact=True)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_the_largest_unsigned_numbers(check, dtype):
    most = torch.iinfo(dtype).max
    values = torch.tensor([0, 1, most, most - 1, most // 2, most // 2 + 1, most // 3], dtype=dtype)
    for target in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool):
        check(lambda x, target=target: x.to(target), values, exact=True)
    check(lambda x: x.to(dtype), torch.tensor([0, 1, -1, -7, 2**40 + 5, -(2**63)]), exact=True)
    check(lambda x: x.to(dtype), torch.tensor([0.0, 1.5, 65535.0, 2.0 ** (torch.iinfo(dtype).bits - 1)]), exact=True)


def test_every_half_number(check):
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    check(lambda x: x.float(), halves, exact=True)
    near = halves.float()
    between = torch.cat([near, near.nextafter(torch.tensor(1e9)), near * (1 + 2**-12), near * (1 + 2**-11), near / 3])
    check(
        lambda x: x.half(), torch.cat([between, torch.tensor([65519.0, 65520.0, 1e9, 2.0**-25, 2.0**-24])]), exact=True
    )
    check(lambda x: x.bfloat16(), between, exact=True)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_number_of_eight_bits(check, dtype):
    numbers = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    for target in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.bool):
        check(lambda x, target=target: x.to(target), numbers, exact=True)
    check(lambda x: x.to(torch.int32), numbers[numbers.float().isfinite()], exact=True)
    check(lambda x: x.view(16, 16).t().contiguous().view(torch.uint8), numbers, exact=True)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_half_number_becomes_one_of_eight_bits(check, dtype):
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    near = torch.cat([halves.float(), halves.float() * (1 + 2**-12), halves.float() * (1 - 2**-12)])
    far = torch.tensor([1e38, -1e38, 1e-45, -1e-45, 2.0**-126, 0.0, -0.0])
    for values in (halves, halves.view(torch.bfloat16), torch.cat([near, far]), near.double()):
        check(lambda x: x.to(dtype).view(torch.uint8), values, exact=True)
    for values in (torch.arange(-300, 300), torch.tensor([True, False]), near.to(torch.complex64)[::7]):
        check(lambda x: x.to(dtype).view(torch.uint8), values, exact=True)
    check(lambda x: x.view(-1, 3, 8)[:, ::2].to(dtype).view(torch.uint8), near, exact=True)
