"""Nested tensors, strided and jagged, on the device give what they give on the CPU."""

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_backend import fallback

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
]

SHAPES = [(2, 4), (3, 4), (1, 4)]


def components(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def nested(device: str, layout: torch.layout = torch.strided, **kwargs: bool) -> Tensor:
    return torch.nested.nested_tensor([x.to(device) for x in components()], layout=layout, **kwargs)


def check(actual: Tensor, expected: Tensor, name: str) -> None:
    assert actual.device.type == name
    assert (actual.is_nested, actual.layout, actual.dtype) == (expected.is_nested, expected.layout, expected.dtype)
    pairs = zip(actual.unbind(), expected.unbind(), strict=True) if expected.is_nested else [(actual, expected)]
    for one, other in pairs:
        assert one.device.type == name
        torch.testing.assert_close(one.detach().cpu(), other.detach())


both_layouts = pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])

# ---- making and moving them ----


@both_layouts
def test_construction(name: str, layout: torch.layout) -> None:
    expected = nested("cpu", layout)
    check(nested(name, layout), expected, name)
    check(torch.nested.nested_tensor(components(), layout=layout, device=name), expected, name)
    check(torch.nested.as_nested_tensor([x.to(name) for x in components()], layout=layout), expected, name)
    check(expected.to(name), expected, name)
    check(nested(name, layout).cpu(), expected, "cpu")
    check(nested(name, layout).to(torch.float64), expected.to(torch.float64), name)
    check(nested(name, layout).clone(), expected, name)
    check(nested(name, layout).detach(), expected, name)


def test_copies(name: str) -> None:
    x = nested(name)
    y = torch.zeros_like(x)
    assert y.copy_(x) is y
    check(y, nested("cpu"), name)
    check(torch.zeros_like(x).copy_(nested("cpu")), nested("cpu"), name)


def test_serialization(name: str) -> None:
    buffer = io.BytesIO()
    torch.save(nested(name), buffer)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False), nested("cpu"), name)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False, map_location="cpu"), nested("cpu"), "cpu")


def test_printing(name: str) -> None:
    assert "nested_tensor" in repr(nested(name))
    assert f"device='{name}:0'" in repr(nested(name))


@both_layouts
def test_padding(name: str, layout: torch.layout) -> None:
    padded, expected = nested(name, layout).to_padded_tensor(-1.0), nested("cpu", layout).to_padded_tensor(-1.0)
    check(padded, expected, name)


def test_from_mask(name: str) -> None:
    values = torch.arange(24.0).view(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    check(
        torch._nested_tensor_from_mask(values.to(name), mask.to(name)),
        torch._nested_tensor_from_mask(values, mask),
        name,
    )


# ---- operators ----

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


@pytest.mark.parametrize("use", OPERATORS.values(), ids=OPERATORS)
def test_operator(name: str, use: Callable[[Tensor], Tensor]) -> None:
    check(use(nested(name)), use(nested("cpu")), name)


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


@pytest.mark.parametrize("use", JAGGED.values(), ids=JAGGED)
def test_jagged_operator(name: str, use: Callable[[Tensor], Tensor]) -> None:
    check(use(nested(name, torch.jagged)), use(nested("cpu", torch.jagged)), name)


def test_writing(name: str) -> None:
    for device in ("cpu", name):
        x = nested(device)
        first = x.unbind()[0]
        assert x.mul_(2) is x
        assert x.add_(x) is x
        torch.testing.assert_close(first.cpu(), components()[0] * 4)
        first.zero_()
        assert x[0].abs().max().item() == 0
        assert x.zero_() is x
        assert x.to_padded_tensor(0.0).abs().max().item() == 0


def test_dropout(name: str) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    x = F.dropout(torch.ones_like(nested(name)), 0.5)
    assert torch.equal(torch.get_rng_state(), state)
    assert set(x.to_padded_tensor(0.0).unique().tolist()) <= {0.0, 2.0}


@both_layouts
def test_gradients(name: str, layout: torch.layout) -> None:
    gradients = []
    for device in ("cpu", name):
        leaves = [x.to(device).requires_grad_() for x in components()]
        x = torch.nested.as_nested_tensor(leaves, layout=layout)
        weight = torch.arange(8.0).view(2, 4).div(8).to(device).requires_grad_()
        y = F.linear(F.gelu(x * 2), weight)
        y.to_padded_tensor(0.0).square().sum().backward()
        gradients.append([leaf.grad for leaf in (*leaves, weight)])
    for expected, actual in zip(*gradients, strict=True):
        assert actual is not None
        assert actual.device.type == name
        torch.testing.assert_close(actual.cpu(), expected)


def test_attention(name: str) -> None:
    results = []
    for device in ("cpu", name):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).to(device).eval()
        encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=True)
        mask = torch.tensor([[False, False, False], [False, False, True]], device=device)
        with torch.no_grad():
            results.append(encoder(torch.arange(24.0).view(2, 3, 4).div(24).to(device), src_key_padding_mask=mask))
    check(results[1], results[0], name)


def test_jagged_attention(name: str) -> None:
    results = []
    for device in ("cpu", name):
        x = nested(device, torch.jagged).unflatten(-1, [2, 2]).transpose(1, 2)
        results.append(F.scaled_dot_product_attention(x, x, x).transpose(1, 2).contiguous().values())
    check(results[1], results[0], name)


# ---- errors and the fallback ----


def test_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = nested(name)
    fallback.reset()
    assert x.is_nested
    assert (x.dim(), x.size(2), len(x.unbind())) == (3, 4, 3)
    assert [entry.op for entry in fallback.report().entries] == []
    x.to_padded_tensor(0.0)
    assert "aten::to_padded_tensor" in [entry.op for entry in fallback.report().entries]
    with fallback.policy("aten::to_padded_tensor", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        x.to_padded_tensor(0.0)


def test_what_the_cpu_lacks_raises(name: str) -> None:
    with pytest.raises(NotImplementedError):
        nested("cpu").cumsum(1)
    with pytest.raises(NotImplementedError, match=f"with nested tensors on {name}: .*neither has the CPU"):
        nested(name).cumsum(1)
