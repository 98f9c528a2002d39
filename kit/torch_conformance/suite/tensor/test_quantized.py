"""Quantized tensors, per tensor and per channel."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_close, assert_equal, each, raises, shown

pytestmark = [
    needs.feature("quantized"),
    needs.dtype("uint8"),
    needs.dtype("int8"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:.*deprecated"),
]

VALUES = torch.linspace(-3, 3, 24).view(2, 3, 4)


def per_tensor(device: str, dtype: torch.dtype = torch.quint8) -> Tensor:
    """A tensor with one scale, on the device."""
    return torch.quantize_per_tensor(VALUES.to(device), 0.05, 64 if dtype is torch.quint8 else 0, dtype)


def per_channel(device: str, dtype: torch.dtype = torch.qint8) -> Tensor:
    """A tensor with a scale per channel, on the device."""
    scales, zeros = torch.tensor([0.1, 0.05, 0.2], dtype=torch.float64), torch.tensor([0, 1, 2])
    return torch.quantize_per_channel(VALUES.to(device), scales.to(device), zeros.to(device), 1, dtype)


SCHEMES = {"tensor": per_tensor, "channel": per_channel}
every_scheme = each("make", SCHEMES)


def check(actual: Tensor, expected: Tensor, device: str) -> None:
    """``actual`` is on the device, and all else about it is as in ``expected``, which is on the CPU."""
    assert actual.device.type == device, f"the result is on {actual.device}, not on {device}"
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride()), (
        "dtype, shape or strides are not as on the CPU"
    )
    assert actual.is_quantized == expected.is_quantized, "the result is quantized on one side only"
    if not expected.is_quantized:
        assert_close(actual, expected, device)
        return
    assert actual.qscheme() == expected.qscheme(), f"the scheme is {actual.qscheme()}, not {expected.qscheme()}"
    if expected.qscheme() == torch.per_tensor_affine:
        assert (actual.q_scale(), actual.q_zero_point()) == (expected.q_scale(), expected.q_zero_point()), (
            f"scale or zero point is {actual.q_scale()}, {actual.q_zero_point()}"
        )
    else:
        assert actual.q_per_channel_axis() == expected.q_per_channel_axis(), (
            f"the axis is {actual.q_per_channel_axis()}"
        )
        for one, other in (
            (actual.q_per_channel_scales(), expected.q_per_channel_scales()),
            (actual.q_per_channel_zero_points(), expected.q_per_channel_zero_points()),
        ):
            assert_close(one, other, device, "the scales or zero points")
    assert_equal(actual.int_repr(), expected.int_repr(), "the quantized numbers")


@every_scheme
@each("dtype", {"quint8": torch.quint8, "qint8": torch.qint8, "qint32": torch.qint32})
def test_quantization(device: str, make: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Quantized numbers, and what they stand for, are those of the CPU."""
    x, expected = make(device, dtype), make("cpu", dtype)
    check(x, expected, device)
    check(x.dequantize(), expected.dequantize(), device)


def test_other_ways_to_quantize(device: str) -> None:
    """Tensors are quantized dynamically, with a scale from a tensor, and from integers."""
    x = VALUES.to(device)
    dynamic = torch.quantize_per_tensor_dynamic(x, torch.quint8, False)
    check(dynamic, torch.quantize_per_tensor_dynamic(VALUES, torch.quint8, False), device)
    scale, zero = torch.tensor(0.1), torch.tensor(3)
    expected = torch.quantize_per_tensor(VALUES, scale, zero, torch.quint8)
    check(torch.quantize_per_tensor(x, scale.to(device), zero.to(device), torch.quint8), expected, device)
    integers = torch.arange(12, dtype=torch.uint8).view(3, 4)
    expected = torch._make_per_tensor_quantized_tensor(integers, 0.5, 2)
    check(torch._make_per_tensor_quantized_tensor(integers.to(device), 0.5, 2), expected, device)


def test_without_contents(device: str) -> None:
    """Uninitialized quantized tensors have the scale and zero point that were asked for."""
    x = torch._empty_affine_quantized((2, 3), scale=0.5, zero_point=1, dtype=torch.qint8, device=device)
    assert (x.device.type, x.q_scale(), x.q_zero_point(), x.shape) == (device, 0.5, 1, (2, 3)), (
        "an uninitialized tensor has other parameters than it was made with"
    )
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    x = torch._empty_per_channel_affine_quantized(
        (2, 3), scales=scales, zero_points=zeros, axis=0, dtype=torch.qint8, device=device
    )
    assert x.q_per_channel_scales().device.type == device, "the scales are not on the device"
    assert torch.empty_like(x).shape == (2, 3), "empty_like changes the shape"


def test_types_of_less_than_a_byte(device: str) -> None:
    """Numbers of four bits keep their values on the device and back on the CPU."""
    scales, zeros = torch.tensor([0.5, 0.25, 1.0]), torch.tensor([0.0, 1.0, 2.0])
    expected = torch.quantize_per_channel(VALUES[0], scales, zeros, 0, torch.quint4x2)
    x = torch.quantize_per_channel(VALUES[0].to(device), scales.to(device), zeros.to(device), 0, torch.quint4x2)
    assert x.device.type == device, f"the tensor is on {x.device}"
    torch.testing.assert_close(x.dequantize().cpu(), expected.dequantize())
    torch.testing.assert_close(x.cpu().dequantize(), expected.dequantize())


@every_scheme
def test_copies(device: str, make: Callable[[str], Tensor]) -> None:
    """Quantized tensors are moved, cloned and copied with their scales."""
    expected = make("cpu")
    x = expected.to(device)
    check(x, expected, device)
    check(x.cpu(), expected, "cpu")
    check(x.clone(), expected, device)
    check(copy.deepcopy(x), expected, device)
    check(x.detach(), expected, device)
    check(x.contiguous(), expected, device)
    y = torch.empty_like(x)
    assert y.copy_(x) is y, "copy_ does not return its destination"
    check(y, expected, device)
    assert torch.equal(x, make(device)), "two tensors that were quantized alike are not equal"


@every_scheme
def test_serialization(device: str, make: Callable[[str], Tensor]) -> None:
    """A quantized tensor is the same after torch.save and torch.load, on the device and on the CPU."""
    buffer = io.BytesIO()
    torch.save(make(device), buffer)
    buffer.seek(0)
    check(torch.load(buffer), make("cpu"), device)
    buffer.seek(0)
    check(torch.load(buffer, map_location="cpu"), make("cpu"), "cpu")


@every_scheme
def test_printing(device: str, make: Callable[[str], Tensor]) -> None:
    """repr() of a quantized tensor shows its device, values and scale."""
    x = make(device)
    text = repr(x)
    assert shown(x) in text, f"the device is not in {text}"
    assert "scale" in text, f"the scale is not in {text}"
    assert "-3.0" in text, f"the values are not in {text}"


@needs.devices(2)
def test_two_devices(device: str) -> None:
    """A quantized tensor is on the device it was made on or moved to."""
    x = per_tensor(f"{device}:1")
    assert x.device == torch.device(device, 1), f"a tensor made on device 1 is on {x.device}"
    check(x.to(f"{device}:0"), per_tensor("cpu"), device)
    assert x.to(f"{device}:0").device == torch.device(device, 0), (
        f"a tensor moved to device 0 is on {x.to(f'{device}:0').device}"
    )
    with raises(RuntimeError, says="same device"):
        torch.ops.quantized.add(x, per_tensor(device), 0.1, 0)


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "clamp": lambda x: x.clamp(-1, 1),
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "max": lambda x: x.max(),
    "max dim": lambda x: x.max(1)[0],
    "sort": lambda x: x.sort(1, descending=True)[0],
    "topk": lambda x: x.topk(2)[1],
    "mean": lambda x: x.mean(-1),
    "compare": lambda x: x > 0,
    "cat": lambda x: torch.cat([x, x]),
    "view": lambda x: x.view(6, 4),
    "transpose": lambda x: x.transpose(0, 2),
    "contiguous": lambda x: x.transpose(0, 2).contiguous(),
    "transposed values": lambda x: x.transpose(0, 2).dequantize(),
    "slice": lambda x: x[1, ::2],
    "values of a slice": lambda x: x[1, ::2].dequantize(),
    "index": lambda x: x[torch.tensor([1, 0], device=x.device)],
    "flip": lambda x: x.flip(1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x[:1].squeeze(0),
    "int_repr": lambda x: x.int_repr(),
    "max_pool": lambda x: F.max_pool1d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x.unsqueeze(0), 2),
    "interpolate": lambda x: F.interpolate(x.unsqueeze(0), scale_factor=2),
    "add": lambda x: torch.ops.quantized.add(x, x, 0.1, 3),
    "mul": lambda x: torch.ops.quantized.mul(x, x, 0.1, 3),
    "add_relu": lambda x: torch.ops.quantized.add_relu(x, x, 0.1, 3),
    "channel": lambda x: torch.ops.quantized.cat([x, x], 0, 0.1, 3),
}


@needs.feature("torch_backend")  # PyTorch has most of them for the CPU alone
@each("use", OPERATORS)
def test_operator(device: str, use: Callable[[Tensor], Tensor]) -> None:
    """An operator on quantized tensors gives what it gives on the CPU."""
    check(use(per_tensor(device)), use(per_tensor("cpu")), device)


def test_per_channel_views(device: str) -> None:
    """A view of a tensor quantized per channel is that, or refused, as on the CPU."""
    for use in (lambda x: x.transpose(0, 2), lambda x: x[:, :, 1]):
        try:
            expected = use(per_channel("cpu"))
        except RuntimeError as error:
            with pytest.raises(type(error)):
                use(per_channel(device))
        else:
            check(use(per_channel(device)), expected, device)


def test_writing(device: str) -> None:
    """Writes to a quantized tensor quantize what is written."""
    results = []
    for where in ("cpu", device):
        x = per_tensor(where)
        x[0].fill_(1.0)
        x[1, 0] = per_tensor(where)[0, 2]
        x.masked_fill_(torch.arange(24, device=where).view(2, 3, 4) == 23, 0.5)
        x.view(24)[5:7].copy_(torch.tensor([0.1, 0.2], device=where))
        out = torch.empty_like(x)
        assert x.relu_() is x, "relu_ returns another tensor"
        torch.ops.quantized.add.out(x, x, out)
        results.append((x, out))
    for actual, expected in zip(results[1], results[0], strict=True):
        check(actual, expected, device)


def test_resizing(device: str) -> None:
    """A quantized tensor that grows keeps its numbers."""
    for where in ("cpu", device):
        x = per_tensor(where)
        assert x.resize_(2, 3, 8) is x, "resize_ returns another tensor"
        assert x.shape == (2, 3, 8), f"the shape after resize_ is {tuple(x.shape)}"
        assert torch.equal(x.view(-1)[:24].int_repr().cpu(), per_tensor("cpu").int_repr().view(-1)), (
            "resize_ forgets the numbers there were"
        )
        x[1, 2] = per_tensor(where).view(-1)[:8]
        assert x[1, 2].int_repr().tolist() == per_tensor("cpu").int_repr().view(-1)[:8].tolist(), (
            "what was written after resize_ is not there"
        )


def test_fake_quantization(device: str) -> None:
    """Fake quantization passes gradients only within its range."""
    for where in ("cpu", device):
        x = VALUES.to(where, copy=True).requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10).sum().backward()
        assert x.grad is not None
        assert x.grad.sum().item() == (VALUES.abs() < 1.05).sum().item(), (
            "gradients pass where the value is outside of the range"
        )


@needs.feature("memory of its own")
def test_mixing_with_the_cpu_raises(device: str) -> None:
    """An operator on quantized tensors of the device and of the CPU raises."""
    with raises(RuntimeError, says="same device"):
        torch.ops.quantized.add(per_tensor(device), per_tensor("cpu"), 0.1, 3)
