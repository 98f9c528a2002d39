"""Images laid out channels_last keep that layout and their values."""

import torch

from torch_conformance.suite.tensor._support import assert_alike, assert_close, assert_same, each, evaluate, numbers

CODE = {
    "add": "x + 1",
    "relu": "x.relu()",
    "clone": "x.clone()",
    "contiguous": "x.contiguous()",
    "zeros_like": "torch.zeros_like(x)",
    "long": "x.long()",
    "to channels_last": "x.to(memory_format=torch.channels_last)",
    "permute": "x.permute(0, 2, 3, 1)",
    "max_pool2d": "torch.nn.functional.max_pool2d(x, 2)",
    "avg_pool2d": "torch.nn.functional.avg_pool2d(x, 2)",
    "interpolate": "torch.nn.functional.interpolate(x, scale_factor=2)",
    "conv2d": "torch.nn.functional.conv2d(x, torch.ones(3, 3, 2, 2, device=x.device))",
    "batch_norm": "torch.nn.functional.batch_norm(x, None, None, training=True)",
    "cat": "torch.cat([x, x], 1)",
    "channels": "x[:, :2]",
    "sum": "x.sum(1)",
    "mul_": "x.mul_(2)",
    "softmax": "x.softmax(1)",
}


@each("code", CODE)
def test_channels_last(device: str, code: str) -> None:
    """An operator on a channels_last image gives the values and the strides that it gives on the CPU."""
    source = torch.arange(96.0).reshape(2, 3, 4, 4)
    expected = evaluate(code, x=source.clone(memory_format=torch.channels_last))
    actual = evaluate(code, x=source.to(device).to(memory_format=torch.channels_last))
    assert_alike(actual, expected, device, code)
    assert_close(actual, expected, device, code)


@each("pad", {"replication": torch.ops.aten.replication_pad2d, "reflection": torch.ops.aten.reflection_pad2d})
def test_out_of_another_layout(device: str, pad: torch._ops.OpOverloadPacket) -> None:
    """An operator on a channels_last image writes the right values into a tensor that is laid out row by row."""
    image = torch.arange(8.0).reshape(1, 2, 2, 2).to(memory_format=torch.channels_last)
    actual, expected = torch.zeros(1, 2, 2, 3, device=device), torch.zeros(1, 2, 2, 3)
    pad.out(image.to(device), [1, 0, 0, 0], out=actual)
    assert_close(actual, pad.out(image, [1, 0, 0, 0], out=expected), device, "the padded image")


def test_channels_last_3d(device: str) -> None:
    """A volume keeps the layout channels_last_3d through conversion and arithmetic."""
    source = torch.arange(48.0).reshape(1, 2, 2, 3, 4)
    x = source.to(device).to(memory_format=torch.channels_last_3d)
    assert x.is_contiguous(memory_format=torch.channels_last_3d), f"the volume has strides {x.stride()}"
    expected = source.to(memory_format=torch.channels_last_3d)
    assert_same(x, expected, device, "the volume")
    assert_same(x * 2, expected * 2, device, "twice the volume")


def test_preserved_format(device: str) -> None:
    """Operators keep their input's order of dimensions, and ``contiguous`` makes it row by row."""
    source = numbers(2, 3, 4).permute(2, 0, 1)
    x = source.to(device)
    assert_same(x + 1, source + 1, device, "a permuted tensor plus one")
    assert_same(torch.zeros_like(x), torch.zeros_like(source), device, "zeros_like of a permuted tensor")
    assert_same(x.contiguous(), source.contiguous(), device, "a permuted tensor made contiguous")
    assert_same(x.clone(memory_format=torch.contiguous_format), source.contiguous(), device, "a contiguous clone")
