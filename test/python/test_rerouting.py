"""torch_backend.reroute: official operators that run as custom ones."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixtures import RunPython

import torch_backend
from torch_backend import operators

gelu = torch.nn.functional.gelu


@pytest.fixture(scope="module", autouse=True)
def library(name: str) -> Iterator[None]:
    declarations: list[dict[str, Any]] = [
        {
            "func": "tbroute::gelu(Tensor x, *, str approximate='none') -> Tensor",
            "kernel": lambda x, *, approximate: torch.full_like(x, len(approximate)),
            "meta": {"like": "x"},
            "backward": lambda ctx, grad: 100 * grad,
        },
        {
            "func": "tbroute::plain_gelu(Tensor x, *, str approximate='none') -> Tensor",
            "kernel": lambda x, *, approximate: gelu(x, approximate=approximate) + 1,
            "meta": {"like": "x"},
        },
        {
            "func": "tbroute::softmax(Tensor x, int dim, ScalarType? dtype=None) -> Tensor",
            "kernel": lambda x, dim, dtype: torch.full_like(x, 3, dtype=dtype),
            "meta": lambda x, dim, dtype: torch.empty_like(x, dtype=dtype),
            "backward": lambda ctx, grad: (7 * grad, None, None),
        },
        {
            "func": "tbroute::plain_softmax(Tensor x, int dim, ScalarType? dtype=None) -> Tensor",
            "kernel": lambda x, dim, dtype: torch.full_like(x, 3, dtype=dtype),
            "meta": lambda x, dim, dtype: torch.empty_like(x, dtype=dtype),
        },
    ]
    with torch_backend.load_operators(declarations):
        yield


@pytest.fixture
def x(name: str) -> torch.Tensor:
    return torch.randn(2, 3, device=name, requires_grad=True)


def test_forward_and_backward(name: str, x: torch.Tensor) -> None:
    source = operators.operator_sources()["aten::gelu"]
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu") as route:
        assert torch_backend.reroutes() == (route,)
        assert (route.overload, route.to, route.enabled) == ("aten::gelu", "tbroute::gelu", True)
        assert repr(route) == "<reroute aten::gelu -> tbroute::gelu, enabled>"
        assert operators.operator_sources()["aten::gelu"] == "extension"
        y = gelu(x, approximate="tanh")
        y.sum().backward()
        assert y.unique().tolist() == [4]
        assert x.grad is not None
        assert x.grad.unique().tolist() == [100]
        with torch.no_grad():
            assert gelu(x).unique().tolist() == [4]
        with torch.inference_mode():
            assert gelu(torch.ones(2, device=name)).tolist() == [4, 4]
        assert gelu(torch.ones(2)).unique().item() < 1  # other devices go their way
    assert torch_backend.reroutes() == ()
    assert operators.operator_sources()["aten::gelu"] == source


def test_switching_restores_bit_for_bit(x: torch.Tensor) -> None:
    def run() -> tuple[torch.Tensor, torch.Tensor]:
        y = gelu(x)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    listed = operators.registrations()
    before = run()
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu") as route:
        for _ in range(2):
            assert run()[0].unique().tolist() == [4]
            route.disable()
            route.disable()
            assert not route.enabled
            assert torch_backend.reroutes() == (route,)
            assert all(torch.equal(a, b) for a, b in zip(run(), before, strict=True))
            assert operators.registrations() == listed
            route.enable()
            route.enable()
    assert all(torch.equal(a, b) for a, b in zip(run(), before, strict=True))


def test_composite_with_backward(x: torch.Tensor) -> None:
    with torch_backend.reroute("aten::softmax.int", to="tbroute::softmax"):
        y = torch.softmax(x, 1, dtype=torch.float64)
        assert y.dtype is torch.float64
        y.sum().backward()
    assert y.unique().tolist() == [3]
    assert x.grad is not None
    assert x.grad.unique().tolist() == [7]


def test_without_backward_gradients_are_pytorchs(x: torch.Tensor) -> None:
    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(gelu(x).sum() + torch.softmax(x, 1)[:, 0].sum(), x)

    def tangents() -> torch.Tensor:
        values = x.detach()
        return torch.func.jvp(lambda x: torch.softmax(x, 1), (values,), (values + 1,))[1]

    expected, expected_tangents = gradients(), tangents()
    with torch_backend.reroute("aten::gelu", to="tbroute::plain_gelu"):
        with torch_backend.reroute("aten::softmax.int", to="tbroute::plain_softmax"):
            assert torch.equal(gradients()[0], expected[0])
            assert torch.equal(tangents(), expected_tangents)
            assert torch.softmax(x.detach(), 1).unique().tolist() == [3]
            assert (torch.softmax(x, 1) < 1).all()


def test_kernel_that_calls_the_official_operator(x: torch.Tensor) -> None:
    expected = gelu(x) + 1
    with torch_backend.reroute("aten::gelu", to="tbroute::plain_gelu"):
        assert torch.equal(gelu(x), expected)


def test_latest_enabled_is_taken(x: torch.Tensor) -> None:
    with torch_backend.reroute("aten::gelu", to="tbroute::plain_gelu") as first:
        with torch_backend.reroute("aten::gelu", to="tbroute::gelu"):
            assert gelu(x).unique().tolist() == [4]
            first.disable()
            first.enable()
            assert gelu(x).unique().tolist() == [5]  # its kernel adds 1 to what the way below it yields


def test_newer_kernel_goes_before_a_reroute(x: torch.Tensor) -> None:
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu"):
        with torch_backend.kernel("aten::gelu")(lambda self, *, approximate: torch.full_like(self, 9)):
            y = gelu(x)
            y.sum().backward()
        assert gelu(x).unique().tolist() == [4]
    assert y.unique().tolist() == [9]
    assert x.grad is not None
    assert (x.grad < 2).all()  # PyTorch's formula


def test_compiled(x: torch.Tensor) -> None:
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu"):
        y = torch.compile(lambda x: gelu(x) * 2, backend="aot_eager", fullgraph=True)(x)
        y.sum().backward()
    assert y.unique().tolist() == [8]
    assert x.grad is not None
    assert x.grad.unique().tolist() == [200]


def test_under_autocast(name: str) -> None:
    linear = torch.nn.Linear(3, 3, device=name)
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu"):
        with torch.autocast(name, dtype=torch.bfloat16):
            y = gelu(linear(torch.ones(1, 3, device=name)))
    assert y.dtype is torch.bfloat16
    assert y.unique().tolist() == [4]


def test_environment_switches_all_off(name: str, monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> None:
    monkeypatch.setenv("TORCH_BACKEND_REROUTE", "0")
    expected = gelu(x)
    with torch_backend.reroute("aten::gelu", to="tbroute::gelu") as route:
        assert not route.enabled
        route.enable()
        assert not route.enabled
        assert torch_backend.reroutes() == (route,)
        assert torch.equal(gelu(x), expected)


def test_before_activation(run_python: RunPython, name: str) -> None:
    process = run_python(
        f"""
        import torch, torch_backend
        declaration = dict(kernel=lambda x: x + 1, meta={{"like": "x"}})
        torch_backend.define_operator("acme::inc(Tensor x) -> Tensor", **declaration)
        routes = [torch_backend.reroute(f"aten::{{op}}", to="acme::inc") for op in ("sin", "tan", "tanh")]
        routes[0].disable()
        assert not any(route.enabled for route in routes)
        torch_backend.activate("{name}")
        x = torch.zeros(1, device="{name}")
        print([route.enabled for route in routes], torch.sin(x).item(), torch.tan(x).item(), torch.tanh(x).item())
        """
    )
    assert process.stdout == "[False, True, True] 0.0 1.0 1.0\n"


@pytest.mark.parametrize(
    ("overload", "to", "message"),
    [
        ("aten::gelu", "tbroute::gelo", "no operator 'tbroute::gelo' in torch .* Did you mean tbroute::gelu"),
        ("aten::relu", "tbroute::gelu", "aten::relu has 1 arguments, tbroute::gelu has 2"),
        ("aten::gelu", "tbroute::softmax", "aten::gelu has 2 arguments, tbroute::softmax has 3"),
        ("aten::log_softmax.int", "aten::sum.dim_IntList", "has 3 arguments, aten::sum has 4"),
        ("aten::gelu", "aten::relu6", "aten::gelu has 2 arguments, aten::relu6 has 1"),
        ("aten::add.Tensor", "aten::sub.Scalar", "positional 'alpha' of aten::sub"),
        ("aten::cumsum", "tbroute::softmax", "argument 3 is the keyword-only 'dtype' of aten::cumsum"),
        ("aten::prelu", "aten::glu", "'weight' is a Tensor, 'dim' of aten::glu a int"),
        ("aten::chunk", "aten::glu", "the default of 'dim' is 0, in|'chunks'|has 3 arguments"),
        ("aten::var", "aten::std_mean", "returns Tensor, aten::std_mean Tensor, Tensor"),
        ("aten::relu_", "aten::relu", "aten::relu_ writes to its arguments"),
        ("aten::relu", "aten::relu", "they are the same operator"),
    ],
)
def test_incompatible(overload: str, to: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch_backend.reroute(overload, to=to)
    assert torch_backend.reroutes() == ()
