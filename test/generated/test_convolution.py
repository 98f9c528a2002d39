"""Convolutions over the device's matrix products, forward and backward, and windows as columns."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def gradients(convolution, inputs, weight, bias, **options):
    leaves = [None if x is None else x.detach().requires_grad_() for x in (inputs, weight, bias)]
    result = convolution(*leaves, **options)
    return [result, *torch.autograd.grad(result, [x for x in leaves if x is not None], result.detach())]


CASES = [
    (1, (2, 4, 17), (6, 4, 3), {}),
    (2, (2, 3, 9, 11), (8, 3, 3, 3), {"padding": 1}),
    (2, (3, 4, 10, 8), (6, 4, 3, 2), {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2)}),
    (2, (2, 6, 7, 7), (4, 6, 1, 1), {}),
    (2, (2, 6, 7, 7), (4, 6, 1, 1), {"stride": 2}),
    (2, (2, 6, 8, 8), (9, 2, 3, 3), {"groups": 3, "padding": 1}),
    (2, (2, 6, 8, 8), (12, 1, 3, 3), {"groups": 6, "padding": 1, "stride": 2}),
    (2, (2, 3, 5, 300), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    (2, (2, 6, 5, 5), (4, 3, 1, 1), {"groups": 2}),
    (2, (1, 1, 3, 600), (2, 1, 2, 5), {"padding": (0, 7)}),
    (3, (2, 2, 5, 6, 4), (3, 2, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
]
TRANSPOSED_CASES = [
    (1, (2, 4, 9), (4, 3, 3), {"stride": 2, "output_padding": 1}),
    (2, (2, 4, 6, 5), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2), "dilation": 1}),
    (2, (2, 4, 6, 5), (4, 3, 3, 3), {"groups": 2, "dilation": 2}),
    (2, (2, 4, 6, 5), (4, 3, 1, 1), {}),
    (3, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"stride": 2}),
]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("dims", "inputs", "weight", "options"), CASES)
def test_convolution(check, dims, inputs, weight, options, has_bias):
    bias = torch.randn(weight[0]) if has_bias else None
    tensors = [torch.randn(inputs), torch.randn(weight)]
    check(gradients, CONVOLUTIONS[dims], *tensors, bias, **options, rtol=1e-4, atol=1e-3)
    if dims > 1:
        tensors[0] = tensors[0].to(memory_format=FORMATS[len(inputs)])
        check(gradients, CONVOLUTIONS[dims], *tensors, bias, **options, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("dims", "inputs", "weight", "options"), TRANSPOSED_CASES)
def test_transposed(check, dims, inputs, weight, options):
    bias = torch.randn(weight[1] * options.get("groups", 1))
    tensors = [torch.randn(inputs), torch.randn(weight)]
    check(gradients, TRANSPOSED[dims], *tensors, bias, **options, rtol=1e-4, atol=1e-3)
    if dims > 1:
        tensors[0] = tensors[0].to(memory_format=FORMATS[len(inputs)])
        check(gradients, TRANSPOSED[dims], *tensors, bias, **options, rtol=1e-4, atol=1e-3)


def test_layouts(check):
    """A result is laid out by channels where the input is."""
    inputs = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    check(lambda x, w: torch.tensor(F.conv2d(x, w).stride()), inputs, torch.randn(4, 3, 3, 3), exact=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_every_dtype(check, dtype):
    tensors = [torch.randn(*sizes).mul(3).to(dtype) for sizes in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))]
    limits = {}
    if DEVICE == "xcuda" and dtype.itemsize == 2:  # cuDNN rounds before the bias is added, and then again
        largest = float(F.conv2d(tensors[0], tensors[1], padding=1).abs().max())
        limits = {"rtol": torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps * largest}
    check(F.conv2d, *tensors, padding=1, **limits)


def test_many_chunks(check):
    """More columns than are made at a time."""
    tensors = torch.randn(40, 16, 32, 32), torch.randn(8, 16, 3, 3), torch.randn(8)
    check(gradients, F.conv2d, *tensors, padding=1, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("options", [{"kernel_size": 3}, {"kernel_size": (2, 3), "stride": 2, "padding": 1}])
def test_columns(check, options):
    inputs = torch.randn(2, 3, 7, 8)
    check(F.unfold, inputs, **options)
    check(F.unfold, inputs.transpose(2, 3), **options)
    check(F.unfold, inputs[0], **options)
    columns = F.unfold(inputs, **options)
    check(F.fold, columns, output_size=(7, 8), **options)
    check(F.fold, columns[0], output_size=(7, 8), **options)
