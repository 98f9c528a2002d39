"""Quantized tensors, per tensor and per channel, on the device give what they give on the CPU."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torch_backend import fallback

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:.*deprecated"),
]

VALUES = torch.linspace(-3, 3, 24).view(2, 3, 4)


def per_tensor(device: str, dtype: torch.dtype = torch.quint8) -> Tensor:
    return torch.quantize_per_tensor(VALUES.to(device), 0.05, 64 if dtype is torch.quint8 else 0, dtype)


def per_channel(device: str, dtype: torch.dtype = torch.qint8) -> Tensor:
    scales, zeros = torch.tensor([0.1, 0.05, 0.2], dtype=torch.float64), torch.tensor([0, 1, 2])
    return torch.quantize_per_channel(VALUES.to(device), scales.to(device), zeros.to(device), 1, dtype)


SCHEMES = {"tensor": per_tensor, "channel": per_channel}
every_scheme = pytest.mark.parametrize("make", SCHEMES.values(), ids=SCHEMES)


def check(actual: Tensor, expected: Tensor, name: str) -> None:
    assert actual.device.type == name
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert actual.is_quantized == expected.is_quantized
    if not expected.is_quantized:
        torch.testing.assert_close(actual.cpu(), expected)
        return
    assert actual.qscheme() == expected.qscheme()
    if expected.qscheme() == torch.per_tensor_affine:
        assert (actual.q_scale(), actual.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
    else:
        assert actual.q_per_channel_axis() == expected.q_per_channel_axis()
        for one, other in (
            (actual.q_per_channel_scales(), expected.q_per_channel_scales()),
            (actual.q_per_channel_zero_points(), expected.q_per_channel_zero_points()),
        ):
            assert one.device.type == name
            assert torch.equal(one.cpu(), other)
    assert torch.equal(actual.int_repr().cpu(), expected.int_repr())


# ---- making and moving them ----


@every_scheme
@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_quantization(name: str, make: Callable[..., Tensor], dtype: torch.dtype) -> None:
    x, expected = make(name, dtype), make("cpu", dtype)
    check(x, expected, name)
    check(x.dequantize(), expected.dequantize(), name)


def test_other_ways_to_quantize(name: str) -> None:
    x = VALUES.to(name)
    dynamic = torch.quantize_per_tensor_dynamic(x, torch.quint8, False)
    check(dynamic, torch.quantize_per_tensor_dynamic(VALUES, torch.quint8, False), name)
    scale, zero = torch.tensor(0.1), torch.tensor(3)
    expected = torch.quantize_per_tensor(VALUES, scale, zero, torch.quint8)
    check(torch.quantize_per_tensor(x, scale.to(name), zero.to(name), torch.quint8), expected, name)
    integers = torch.arange(12, dtype=torch.uint8).view(3, 4)
    expected = torch._make_per_tensor_quantized_tensor(integers, 0.5, 2)
    check(torch._make_per_tensor_quantized_tensor(integers.to(name), 0.5, 2), expected, name)


def test_without_contents(name: str) -> None:
    x = torch._empty_affine_quantized((2, 3), scale=0.5, zero_point=1, dtype=torch.qint8, device=name)
    assert (x.device.type, x.q_scale(), x.q_zero_point(), x.shape) == (name, 0.5, 1, (2, 3))
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    x = torch._empty_per_channel_affine_quantized(
        (2, 3), scales=scales, zero_points=zeros, axis=0, dtype=torch.qint8, device=name
    )
    assert x.q_per_channel_scales().device.type == name
    assert torch.empty_like(x).shape == (2, 3)


def test_types_of_less_than_a_byte(name: str) -> None:
    scales, zeros = torch.tensor([0.5, 0.25, 1.0]), torch.tensor([0.0, 1.0, 2.0])
    expected = torch.quantize_per_channel(VALUES[0], scales, zeros, 0, torch.quint4x2)
    x = torch.quantize_per_channel(VALUES[0].to(name), scales.to(name), zeros.to(name), 0, torch.quint4x2)
    assert x.device.type == name
    torch.testing.assert_close(x.dequantize().cpu(), expected.dequantize())
    torch.testing.assert_close(x.cpu().dequantize(), expected.dequantize())


@every_scheme
def test_copies(name: str, make: Callable[[str], Tensor]) -> None:
    expected = make("cpu")
    x = expected.to(name)
    check(x, expected, name)
    check(x.cpu(), expected, "cpu")
    check(x.clone(), expected, name)
    check(copy.deepcopy(x), expected, name)
    check(x.detach(), expected, name)
    check(x.contiguous(), expected, name)
    y = torch.empty_like(x)
    assert y.copy_(x) is y
    check(y, expected, name)
    assert torch.equal(x, make(name))


@every_scheme
def test_serialization(name: str, make: Callable[[str], Tensor]) -> None:
    buffer = io.BytesIO()
    torch.save(make(name), buffer)
    buffer.seek(0)
    check(torch.load(buffer), make("cpu"), name)
    buffer.seek(0)
    check(torch.load(buffer, map_location="cpu"), make("cpu"), "cpu")


@every_scheme
def test_printing(name: str, make: Callable[[str], Tensor]) -> None:
    text = repr(make(name))
    assert f"device='{name}:0'" in text
    assert "scale" in text
    assert "-3.0" in text


@pytest.mark.usefixtures("two_devices")
def test_two_devices(name: str) -> None:
    x = per_tensor(f"{name}:1")
    assert x.device == torch.device(name, 1)
    check(x.to(f"{name}:0"), per_tensor("cpu"), name)
    assert x.to(f"{name}:0").device == torch.device(name, 0)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.quantized.add(x, per_tensor(name), 0.1, 0)


# ---- operators ----

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


@pytest.mark.parametrize("use", OPERATORS.values(), ids=OPERATORS)
def test_operator(name: str, use: Callable[[Tensor], Tensor]) -> None:
    check(use(per_tensor(name)), use(per_tensor("cpu")), name)


def test_per_channel_views(name: str) -> None:
    for use in (lambda x: x.transpose(0, 2), lambda x: x[:, :, 1]):
        try:
            expected = use(per_channel("cpu"))
        except RuntimeError as error:
            with pytest.raises(type(error)):
                use(per_channel(name))
        else:
            check(use(per_channel(name)), expected, name)


def test_writing(name: str) -> None:
    results = []
    for device in ("cpu", name):
        x = per_tensor(device)
        x[0].fill_(1.0)
        x[1, 0] = per_tensor(device)[0, 2]
        x.masked_fill_(torch.arange(24, device=device).view(2, 3, 4) == 23, 0.5)
        x.view(24)[5:7].copy_(torch.tensor([0.1, 0.2], device=device))
        out = torch.empty_like(x)
        assert x.relu_() is x
        torch.ops.quantized.add.out(x, x, out)
        results.append((x, out))
    for actual, expected in zip(results[1], results[0], strict=True):
        check(actual, expected, name)


def test_resizing(name: str) -> None:
    for device in ("cpu", name):
        x = per_tensor(device)
        assert x.resize_(2, 3, 8) is x
        assert x.shape == (2, 3, 8)
        assert torch.equal(x.view(-1)[:24].int_repr().cpu(), per_tensor("cpu").int_repr().view(-1))
        x[1, 2] = per_tensor(device).view(-1)[:8]
        assert x[1, 2].int_repr().tolist() == per_tensor("cpu").int_repr().view(-1)[:8].tolist()


def test_fake_quantization(name: str) -> None:
    for device in ("cpu", name):
        x = VALUES.to(device, copy=True).requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10).sum().backward()
        assert x.grad is not None
        assert x.grad.sum().item() == (VALUES.abs() < 1.05).sum().item()


# ---- errors and the fallback ----


def test_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = per_tensor(name)
    fallback.reset()
    assert (x.q_scale(), x.view(4, 6).shape, x.clone()[0].shape) == (0.05, (4, 6), (3, 4))
    assert [entry.op for entry in fallback.report().entries] == []
    torch.ops.quantized.add(x, x, 0.1, 3)
    assert "quantized::add" in [entry.op for entry in fallback.report().entries]
    with fallback.policy("quantized::add", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        torch.ops.quantized.add(x, x, 0.1, 3)


def test_what_the_cpu_lacks_raises(name: str) -> None:
    with pytest.raises(NotImplementedError):
        per_tensor("cpu").sin()
    with pytest.raises(NotImplementedError, match=f"with quantized tensors on {name}: .*neither has the CPU"):
        per_tensor(name).sin()


def test_mixing_with_the_cpu_raises(name: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.quantized.add(per_tensor(name), per_tensor("cpu"), 0.1, 3)
