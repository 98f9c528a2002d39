"""Convolutions of images laid out by channels: tracing knows how their results and gradients are laid out."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_conformance.suite.compile._support import compiled
from torch_conformance.suite.tensor._support import each

Convolution: TypeAlias = tuple[Callable[[Tensor, Tensor], Tensor], int]
"""A convolution, and over how many dimensions it is."""

CONVOLUTIONS: dict[str, Convolution] = {
    "conv1d": (F.conv1d, 1),
    "conv2d": (F.conv2d, 2),
    "conv3d": (F.conv3d, 3),
    "conv_transpose1d": (F.conv_transpose1d, 1),
    "conv_transpose2d": (F.conv_transpose2d, 2),
    "conv_transpose3d": (F.conv_transpose3d, 3),
}
FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}
BY_CHANNELS = {"image": (True, False), "weight": (False, True), "both": (True, True), "none": (False, False)}


def _arguments(device: str, dims: int, by_channels: tuple[bool, bool]) -> list[Tensor]:
    """An image and a weight, of small whole numbers: their sums are the same in every order."""
    shapes = ((2, 3, *[5] * dims), (3, 3, *[3] * dims))
    values = [torch.arange(math.prod(shape), dtype=torch.float32) % 5 - 2 for shape in shapes]
    formats = [FORMATS[dims] if wanted else torch.contiguous_format for wanted in by_channels]
    return [
        value.reshape(shape).to(device).contiguous(memory_format=form).requires_grad_()
        for value, shape, form in zip(values, shapes, formats, strict=True)
    ]


@each("by_channels", BY_CHANNELS)
@each("convolution", CONVOLUTIONS)
def test_flattened(device: str, convolution: Convolution, by_channels: tuple[bool, bool]) -> None:
    """A compiled convolution, flattened, and its gradients are what they are without compiling."""
    convolve, dims = convolution

    def function(image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        result = convolve(image, weight)
        return result, result.flatten()

    def run(call: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> list[Tensor]:
        arguments = _arguments(device, dims, by_channels)
        result, flat = call(*arguments)
        return [result, flat, *torch.autograd.grad(flat.square().sum(), arguments)]

    for actual, expected in zip(run(compiled(function)), run(function), strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride(), f"{actual.stride()}, and {expected.stride()} without compiling"


@each("convolution", CONVOLUTIONS)
def test_exported(device: str, convolution: Convolution) -> None:
    """An exported convolution, flattened, gives what it gives without exporting."""
    convolve, dims = convolution

    class Model(torch.nn.Module):
        def forward(self, image: Tensor, weight: Tensor) -> Tensor:
            return convolve(image, weight).flatten(1)

    image, weight = (x.detach() for x in _arguments(device, dims, (True, False)))
    exported = torch.export.export(Model(), (image, weight)).module()
    torch.testing.assert_close(exported(image, weight), Model()(image, weight))
