"""Copies within a device whose memory the host cannot reach: any strides, any dtypes."""

import itertools

import pytest
import torch

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)
DTYPES += (torch.float32, torch.float64)


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


def test_negated_views(check):
    values = torch.randn(4, 3)
    check(lambda x: torch._neg_view(x).contiguous(), values, exact=True)


@pytest.mark.parametrize("source", [torch.int32, torch.float32, torch.complex64, torch.complex128])
@pytest.mark.parametrize("target", [torch.float32, torch.complex64, torch.complex128])
def test_copies_between_complex_and_real(check, source, target):
    values = torch.randn(4, 3, dtype=torch.complex64).mul(10).to(source)
    check(lambda x: x.t().to(target), values, exact=True)
    check(lambda x: x.conj().to(target).resolve_conj(), values, exact=True)
    check(lambda x: x[::2].conj().clone(), values, exact=True)
