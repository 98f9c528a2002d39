"""Nested tensors, strided and jagged."""

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_close, each, shown

pytestmark = [
    needs.feature("nested"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
]

SHAPES = [(2, 4), (3, 4), (1, 4)]


def components() -> list[Tensor]:
    """The tensors of different lengths that nested ones are made of."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def nested(device: str, layout: torch.layout = torch.strided) -> Tensor:
    """A nested tensor on the device."""
    return torch.nested.nested_tensor([x.to(device) for x in components()], layout=layout)


def check(actual: Tensor, expected: Tensor, device: str) -> None:
    """``actual`` is on the device, and all its parts are as those of ``expected``, which is on the CPU."""
    assert actual.device.type == device, f"the result is on {actual.device}, not on {device}"
    assert (actual.is_nested, actual.layout, actual.dtype) == (expected.is_nested, expected.layout, expected.dtype), (
        "layout, dtype or being nested are not as on the CPU"
    )
    pairs = zip(actual.unbind(), expected.unbind(), strict=True) if expected.is_nested else [(actual, expected)]
    for number, (one, other) in enumerate(pairs):
        assert_close(one, other, device, f"part {number} of the nested result")


both_layouts = each("layout", {"strided": torch.strided, "jagged": torch.jagged})


@needs.dtype("float16")
@both_layouts
def test_construction(device: str, layout: torch.layout) -> None:
    """Nested tensors are made of tensors of the device or of the CPU, moved, cloned and converted."""
    expected = nested("cpu", layout)
    check(nested(device, layout), expected, device)
    check(torch.nested.nested_tensor(components(), layout=layout, device=device), expected, device)
    check(torch.nested.as_nested_tensor([x.to(device) for x in components()], layout=layout), expected, device)
    check(expected.to(device), expected, device)
    check(nested(device, layout).cpu(), expected, "cpu")
    check(nested(device, layout).to(torch.float16), expected.to(torch.float16), device)
    check(nested(device, layout).clone(), expected, device)
    check(nested(device, layout).detach(), expected, device)


def test_copies(device: str) -> None:
    """A nested tensor is copied into another one, from the device and from the CPU."""
    x = nested(device)
    y = torch.zeros_like(x)
    assert y.copy_(x) is y, "copy_ does not return its destination"
    check(y, nested("cpu"), device)
    check(torch.zeros_like(x).copy_(nested("cpu")), nested("cpu"), device)


def test_serialization(device: str) -> None:
    """A nested tensor is the same after torch.save and torch.load, on the device and on the CPU."""
    buffer = io.BytesIO()
    torch.save(nested(device), buffer)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False), nested("cpu"), device)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False, map_location="cpu"), nested("cpu"), "cpu")


def test_printing(device: str) -> None:
    """repr() of a nested tensor shows its device."""
    x = nested(device)
    assert "nested_tensor" in repr(x), "repr() does not say that the tensor is nested"
    assert shown(x) in repr(x), f"the device is not in {x!r}"


@both_layouts
def test_padding(device: str, layout: torch.layout) -> None:
    """A nested tensor is padded with the value that is given."""
    padded, expected = nested(device, layout).to_padded_tensor(-1.0), nested("cpu", layout).to_padded_tensor(-1.0)
    check(padded, expected, device)


def test_from_mask(device: str) -> None:
    """A padded tensor and its mask make the nested tensor that they make on the CPU."""
    values = torch.arange(24.0).view(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    check(
        torch._nested_tensor_from_mask(values.to(device), mask.to(device)),
        torch._nested_tensor_from_mask(values, mask),
        device,
    )


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda x: -x,
    "relu": lambda x: x.relu(),
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": lambda x: x.tanh(),
    "add": lambda x: x + x,
    "sub": lambda x: x - x * 2,
    "mul": lambda x: x * x,
    "mul scalar": lambda x: x * 2,
    "div": lambda x: x / 2,
    "ge": lambda x: x >= 0,
    "transpose": lambda x: x.transpose(1, 2),
    "transposed twice": lambda x: x.transpose(1, 2).transpose(1, 2) + 0,
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "select": lambda x: x[1],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,), torch.ones(4, device=x.device), torch.zeros(4, device=x.device)),
    "linear": lambda x: F.linear(x, torch.arange(8.0, device=x.device).view(2, 4), torch.ones(2, device=x.device)),
    "matmul": lambda x: torch.matmul(x, x.transpose(1, 2)),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "view": lambda x: x.view(3, -1, 2, 2),
    "reshape": lambda x: x.reshape(3, -1, 2, 2).transpose(1, 2),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "cat": lambda x: torch.cat([x, x]),
    "masked_fill": lambda x: x.masked_fill(x > 0, 5.0),
    "values": lambda x: x.values(),
    "empty_like": lambda x: torch.empty_like(x).fill_(3),
    "ones_like": lambda x: torch.ones_like(x),
    "padded and back": lambda x: torch._nested_from_padded(x.to_padded_tensor(0.0), x._nested_tensor_size()),
}


@each("use", OPERATORS)
def test_operator(device: str, use: Callable[[Tensor], Tensor]) -> None:
    """An operator on strided nested tensors gives what it gives on the CPU."""
    check(use(nested(device)), use(nested("cpu")), device)


JAGGED: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + 1,
    "mul": lambda x: x * x,
    "softmax": lambda x: torch.softmax(x, -1),
    "linear": lambda x: F.linear(x, torch.arange(8.0, device=x.device).view(2, 4)),
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(-1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
}


@each("use", JAGGED)
def test_jagged_operator(device: str, use: Callable[[Tensor], Tensor]) -> None:
    """An operator on jagged nested tensors gives what it gives on the CPU."""
    check(use(nested(device, torch.jagged)), use(nested("cpu", torch.jagged)), device)


def test_writing(device: str) -> None:
    """An in-place operator on a nested tensor is seen in its parts, and a write to a part in the whole."""
    for where in ("cpu", device):
        x = nested(where)
        first = x.unbind()[0]
        assert x.mul_(2) is x, "mul_ returns another tensor"
        assert x.add_(x) is x, "add_ returns another tensor"
        torch.testing.assert_close(first.cpu(), components()[0] * 4)
        first.zero_()
        assert x[0].abs().max().item() == 0, "a write to a part of a nested tensor is not seen in it"
        assert x.zero_() is x, "zero_ returns another tensor"
        assert x.to_padded_tensor(0.0).abs().max().item() == 0, "zero_ leaves values in a nested tensor"


@needs.feature("generator")
def test_dropout(device: str) -> None:
    """Dropout on a nested tensor draws from the device, and scales what it keeps."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    x = F.dropout(torch.ones_like(nested(device)), 0.5)
    assert torch.equal(torch.get_rng_state(), state), "dropout on the device has advanced the CPU's generator"
    assert set(x.to_padded_tensor(0.0).unique().tolist()) <= {0.0, 2.0}, (
        f"dropout of ones gives {x.to_padded_tensor(0.0).unique().tolist()}"
    )


@both_layouts
def test_gradients(device: str, layout: torch.layout) -> None:
    """Gradients go through a nested tensor to what it was made of, and to weights."""
    gradients = []
    for where in ("cpu", device):
        leaves = [x.to(where).requires_grad_() for x in components()]
        x = torch.nested.as_nested_tensor(leaves, layout=layout)
        weight = torch.arange(8.0).view(2, 4).div(8).to(where).requires_grad_()
        y = F.linear(F.gelu(x * 2), weight)
        y.to_padded_tensor(0.0).square().sum().backward()
        gradients.append([leaf.grad for leaf in (*leaves, weight)])
    for expected, actual in zip(*gradients, strict=True):
        assert actual is not None
        assert actual.device.type == device
        torch.testing.assert_close(actual.cpu(), expected)


def test_attention(device: str) -> None:
    """A transformer that makes its input nested gives what it gives on the CPU."""
    results = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).to(where).eval()
        encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=True)
        mask = torch.tensor([[False, False, False], [False, False, True]], device=where)
        with torch.no_grad():
            results.append(encoder(torch.arange(24.0).view(2, 3, 4).div(24).to(where), src_key_padding_mask=mask))
    check(results[1], results[0], device)


def test_jagged_attention(device: str) -> None:
    """Attention over sequences of different lengths gives what it gives on the CPU."""
    results = []
    for where in ("cpu", device):
        x = nested(where, torch.jagged).unflatten(-1, [2, 2]).transpose(1, 2)
        results.append(F.scaled_dot_product_attention(x, x, x).transpose(1, 2).contiguous().values())
    check(results[1], results[0], device)
