"""Pooling forward and backward, images of another size, borders."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE


def gradients(function, inputs, **options):
    leaf = inputs.detach().requires_grad_()
    result = function(leaf, **options)
    values = result if isinstance(result, tuple) else (result,)
    return [*values, *torch.autograd.grad(values[0], leaf, values[0].detach())]


def with_indices(function):
    return lambda x, **options: function(x, return_indices=True, **options)


WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1, "padding": 1},
]


@pytest.mark.parametrize("options", [*WINDOWS, {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2}], ids=str)
def test_largest(check, options):
    for dims, function in ((1, F.max_pool1d), (2, F.max_pool2d), (3, F.max_pool3d)):
        inputs = torch.randn(2, 3, *(7, 8, 9)[:dims])
        check(gradients, with_indices(function), inputs, **options)
    inputs = torch.randn(2, 3, 9, 8)
    check(gradients, with_indices(F.max_pool2d), inputs.to(memory_format=torch.channels_last), **options)
    check(gradients, with_indices(F.max_pool2d), inputs.transpose(2, 3), **options)
    check(gradients, with_indices(F.max_pool2d), inputs[0], **options)


@pytest.mark.parametrize("options", [*WINDOWS, {"kernel_size": 3, "padding": 1, "count_include_pad": False}], ids=str)
def test_mean(check, options):
    for dims, function in ((1, F.avg_pool1d), (2, F.avg_pool2d), (3, F.avg_pool3d)):
        check(gradients, function, torch.randn(2, 3, *(7, 8, 9)[:dims]), **options)
    inputs = torch.randn(2, 3, 9, 8)
    check(gradients, F.avg_pool2d, inputs.to(memory_format=torch.channels_last), **options)
    check(gradients, F.avg_pool2d, inputs, **options, divisor_override=5)


@pytest.mark.parametrize("size", [1, 3, 5, 11])
def test_adaptive(check, size):
    for dims, mean, largest in (
        (1, F.adaptive_avg_pool1d, F.adaptive_max_pool1d),
        (2, F.adaptive_avg_pool2d, F.adaptive_max_pool2d),
        (3, F.adaptive_avg_pool3d, F.adaptive_max_pool3d),
    ):
        inputs = torch.randn(2, 3, *(7, 8, 9)[:dims])
        if size > 1:  # else the mean of all, which is a reduction
            check(gradients, mean, inputs, output_size=size)
        check(gradients, with_indices(largest), inputs, output_size=size)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_every_dtype(check, dtype):
    inputs = torch.randn(2, 3, 9, 8).mul(10).to(dtype)
    check(with_indices(F.max_pool2d), inputs, kernel_size=3, stride=2, exact=True)
    check(F.avg_pool2d, inputs, kernel_size=3, stride=2)


def test_nan_and_infinity(check):
    inputs = torch.randn(1, 2, 8, 8)
    inputs[0, 0, 2:4] = -torch.inf
    inputs[0, 1, 5, 5], inputs[0, 1, 1, 1] = torch.nan, torch.inf
    check(with_indices(F.max_pool2d), inputs, kernel_size=2, exact=True)
    check(with_indices(F.adaptive_max_pool2d), inputs, output_size=3, exact=True)


MODES = [(1, "nearest"), (2, "nearest"), (3, "nearest"), (1, "nearest-exact"), (2, "nearest-exact"), (1, "linear")]
MODES += [(3, "nearest-exact"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic")]


@pytest.mark.parametrize(("dims", "mode"), MODES)
def test_other_sizes(check, dims, mode):
    inputs = torch.randn(2, 3, *(5, 7, 6)[:dims])
    limits = {"rtol": 1e-4, "atol": 1e-5}
    for size in ((10, 14, 12), (3, 4, 4), (5, 9, 1), (13, 7, 6)):
        check(gradients, F.interpolate, inputs, size=size[:dims], mode=mode, **limits)
        if not mode.startswith("nearest"):
            check(gradients, F.interpolate, inputs, size=size[:dims], mode=mode, align_corners=True, **limits)
    check(gradients, F.interpolate, inputs, scale_factor=1.7, mode=mode, **limits)
    if dims == 2:
        there = inputs.to(memory_format=torch.channels_last)
        check(gradients, F.interpolate, there, scale_factor=2, mode=mode, **limits)
        check(F.interpolate, inputs.double(), scale_factor=2.3, mode=mode)
        check(F.interpolate, inputs.bfloat16(), scale_factor=2, mode=mode)


LANCZOS = ["lanczos"] if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa") else []


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", *LANCZOS])
def test_other_sizes_without_aliases(check, mode):
    """Smaller and larger by any factor, of one dimension or of both."""
    inputs = torch.randn(2, 3, 20, 7)
    limits = {"rtol": 1e-4, "atol": 1e-5}
    for size in ((3, 4), (41, 20), (4, 21), (20, 7), (1, 1), (20, 3)):
        for align_corners in (False, True) if mode != "lanczos" else (False,):
            options = {"size": size, "mode": mode, "align_corners": align_corners, "antialias": True}
            check(gradients, F.interpolate, inputs, **options, **limits)
            check(gradients, F.interpolate, inputs.double(), **options)
    there = inputs.to(memory_format=torch.channels_last)
    for scale_factor in (0.4, (1.7, 0.6)):
        check(gradients, F.interpolate, there, scale_factor=scale_factor, mode=mode, antialias=True, **limits)
    check(gradients, F.interpolate, inputs[..., :1, :1], size=(3, 2), mode=mode, antialias=True, **limits)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_borders(check, mode):
    for dims, padding in ((1, (2, 3)), (2, (2, 3, 1, 0)), (3, (2, 3, 1, 0, 3, 2)), (2, (0, 3, -1, 2))):
        inputs = torch.randn(2, 3, *(5, 7, 6)[:dims])
        check(gradients, F.pad, inputs, pad=padding, mode=mode)
        check(F.pad, inputs.mul(9).long(), pad=padding, mode=mode, exact=True)


def test_shuffles(check):
    check(gradients, F.pixel_shuffle, torch.randn(2, 8, 3, 5), upscale_factor=2)
    check(gradients, F.pixel_unshuffle, torch.randn(2, 2, 6, 4), downscale_factor=2)
    check(F.channel_shuffle, torch.randn(2, 8, 3, 5), groups=2)
    check(lambda x: F.channel_shuffle(x, groups=1).zero_(), torch.randn(2, 8, 3, 5))
    x = torch.randn(2, 8, 3, 5)
    for y in (x.transpose(0, 1).contiguous().transpose(0, 1), x.mT.contiguous().mT, x[:1].expand(2, 8, 3, 5)):
        check(F.channel_shuffle, y, groups=2)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("sizes", [(1, 0, 3), (1, 0, 2, 2), (1, 2, 0, 3), (1, 0, 2, 2, 2)])
def test_nothing_is_unpooled(device, sizes):
    unpool = getattr(F, f"max_unpool{len(sizes) - 2}d")
    with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
        unpool(torch.ones(sizes, device=device), torch.ones(sizes, dtype=torch.int64, device=device), 2)
