"""Tensors that are made of a range."""

import pytest
import torch
from conftest import DEVICE


@pytest.mark.parametrize("arguments", [(5,), (-3, 9), (0, 1, 0.1), (10, -4, -3), (2, 2), (0.5, 100000.5)])
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.int32, torch.uint8, torch.float16, torch.float64])
def test_arange(arguments, dtype):
    if dtype is torch.uint8 and min(arguments) < 0:
        pytest.skip("the CPU wraps numbers below 0 as it likes")
    try:
        torch.arange(*arguments, dtype=dtype, device="meta")
    except (RuntimeError, ValueError, ZeroDivisionError) as error:  # up to torch 2.13: 0.1 is 0 as a whole number
        with pytest.raises(type(error), match=str(error)):
            torch.arange(*arguments, dtype=dtype, device=DEVICE)
        return
    expected = torch.arange(*arguments, dtype=dtype)
    torch.testing.assert_close(torch.arange(*arguments, dtype=dtype, device=DEVICE).cpu(), expected)


@pytest.mark.parametrize("arguments", [(0, 1, 11), (3, -7, 100), (2, 5, 1), (2, 5, 0), (-1e6, 1e6, 99999)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_linspace(arguments, dtype):
    expected = torch.linspace(*arguments, dtype=torch.float64).to(dtype)  # the CPU's own steps are rounded to the dtype
    torch.testing.assert_close(torch.linspace(*arguments, dtype=dtype, device=DEVICE).cpu(), expected)


def test_out():
    out = torch.empty(20, device=DEVICE)[::2]
    torch.arange(10, out=out)
    assert out.tolist() == list(range(10))
    square = torch.empty(2, 5, dtype=torch.int64, device=DEVICE)
    torch.arange(10, out=square)
    assert square.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("size", [(3,), (2, 4), (4, 2), (0,), (0, 3)])
def test_eye(size):
    for dtype in (torch.float32, torch.bool, torch.complex64):
        assert torch.eye(*size, dtype=dtype, device=DEVICE).cpu().equal(torch.eye(*size, dtype=dtype))
