"""torch_backend.load_operators and define_operator: what a declared operator can do."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixtures import RunPython

import torch_backend
from torch_backend import operators
from torch_backend.custom_ops import DeclarationError, OperatorLibrary


def scale(x: torch.Tensor, factor: float, *, offset: int) -> torch.Tensor:
    return x * factor + offset


batches: list[int] = []


def scale_batch(info: Any, dims: Any, x: torch.Tensor, factor: float = 2.0, *, offset: int = 0) -> Any:
    batches.append(info.batch_size)
    return x * factor + offset, dims[0]


def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin(), x.cos()


def split_backward(grad_sin: torch.Tensor, grad_cos: torch.Tensor, sin: torch.Tensor, cos: torch.Tensor) -> Any:
    return grad_sin * cos - grad_cos * sin


def bump(x: torch.Tensor) -> None:
    x.add_(1)


DECLARATIONS: list[dict[str, Any]] = [
    {
        "func": "tbtest::scale(Tensor x, float factor=2.0, *, int offset=0) -> Tensor",
        "kernel": scale,
        "meta": {"like": "x"},
        "backward": {"operator": "tbtest::scale_backward", "arguments": {"g": "grad"}, "gradients": ["x"]},
        "doc": "x * factor + offset",
        "vmap": scale_batch,
    },
    {
        "func": "tbtest::scale_backward(Tensor g, float factor) -> Tensor",
        "kernel": lambda g, factor: g * factor,
        "meta": lambda g, factor: torch.empty_like(g),
    },
    {
        "func": "tbtest::split(Tensor x) -> (Tensor, Tensor)",
        "kernel": split,
        "meta": {"like": ["x", "x"]},
        "backward": {
            "operator": "tbtest::split_backward",
            "arguments": {"grad_sin": "grad.0", "grad_cos": "grad.1", "sin": "output", "cos": "output.1"},
            "gradients": "x",
        },
    },
    {
        "func": "tbtest::split_backward(Tensor grad_sin, Tensor grad_cos, Tensor sin, Tensor cos) -> Tensor",
        "kernel": split_backward,
        "meta": {"like": "sin"},
    },
    {
        "func": "tbtest::cube(Tensor x) -> Tensor",
        "kernel": lambda x: x**3,
        "meta": {"like": "x"},
        "backward": {"function": lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad, "save": ["x"]},
    },
    {"func": "tbtest::bump(Tensor(a!) x) -> ()", "kernel": bump},
    {
        "func": "tbtest::classes(Tensor x, int n) -> Tensor",
        "kernel": lambda x, n: (x * n).to(torch.int64),
        "meta": {"like": "x", "dtype": "int64"},
    },
]


@pytest.fixture(scope="module", autouse=True)
def library(name: str) -> Iterator[OperatorLibrary]:
    with torch_backend.load_operators(DECLARATIONS) as loaded:
        yield loaded


@pytest.fixture
def x(name: str) -> torch.Tensor:
    return torch.randn(3, 4, device=name)


def samples(name: str, requires_grad: bool) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=name, requires_grad=requires_grad)

    return {
        "scale": ((tensor(3, 4), 1.5), {"offset": 1}),
        "scale_backward": ((torch.randn(3, device=name), 2.0), {}),
        "split": ((tensor(2, 3),), {}),
        "cube": ((tensor(5),), {}),
        "bump": ((torch.randn(3, device=name),), {}),
        "classes": ((torch.randn(3, device=name), 4), {}),
    }


@pytest.mark.parametrize("op", ["scale", "scale_backward", "split", "cube", "bump", "classes"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(name: str, op: str, requires_grad: bool) -> None:
    args, kwargs = samples(name, requires_grad)[op]
    overload = getattr(torch.ops.tbtest, op).default
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    if args[0].requires_grad:  # then PyTorch's check of where autograd is registered knows no out-of-tree device
        assert torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, "Autograd")
    else:
        checks.append("test_autograd_registration")
    results = torch.library.opcheck(overload, args, kwargs, test_utils=checks)
    assert results == dict.fromkeys(checks, "SUCCESS")


def test_defaults(x: torch.Tensor) -> None:
    assert torch.equal(torch.ops.tbtest.scale(x), x * 2)
    assert torch.equal(torch.ops.tbtest.scale(x, offset=1), x * 2 + 1)


def test_backward_operator(x: torch.Tensor) -> None:
    x.requires_grad_()
    torch.ops.tbtest.scale(x, 3.0).sum().backward()
    assert x.grad is not None
    assert x.grad.unique().tolist() == [3]
    x.grad = None
    sin, cos = torch.ops.tbtest.split(x)
    (sin + 2 * cos).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos() - 2 * x.detach().sin())
    x.grad = None
    torch.ops.tbtest.split(x)[1].sum().backward()  # the other output has no gradient
    torch.testing.assert_close(x.grad, -x.detach().sin())


def test_gradients_numerically(name: str) -> None:
    x = torch.randn(4, device=name, dtype=torch.float64, requires_grad=True)
    for op in (torch.ops.tbtest.scale, torch.ops.tbtest.split, torch.ops.tbtest.cube):
        assert torch.autograd.gradcheck(op, (x,))


@pytest.mark.parametrize("op", ["scale", "split", "cube"])
def test_compile(x: torch.Tensor, op: str) -> None:
    function = getattr(torch_backend.ops.tbtest, op)

    def step(x: torch.Tensor) -> Any:
        result = function(x)
        return (result[0] + result[1] if isinstance(result, tuple) else result).sum()

    eager, compiled = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = step(eager)
    expected.backward()
    actual = torch.compile(step, backend="aot_eager", fullgraph=True)(compiled)
    actual.backward()
    assert torch.equal(actual, expected)
    assert eager.grad is not None
    assert compiled.grad is not None
    assert torch.equal(compiled.grad, eager.grad)


def test_fake_tensors(name: str, x: torch.Tensor) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        classes = torch.ops.tbtest.classes(fake, 3)
        assert classes.device.type == name
        assert classes.dtype is torch.int64
        assert [tuple(result.shape) for result in torch.ops.tbtest.split(fake)] == [(3, 4)] * 2


def test_vmap_by_the_declared_rule(x: torch.Tensor) -> None:
    batches.clear()
    assert torch.equal(torch.vmap(torch.ops.tbtest.scale)(x), x * 2)
    assert batches == [len(x)]  # once, for all slices


def test_python_function(name: str, x: torch.Tensor) -> None:
    function = torch_backend.ops.tbtest.scale
    assert function is getattr(torch, name).ops.tbtest.scale
    assert str(inspect.signature(function)) == (
        "(x: torch.Tensor, factor: float = 2.0, *, offset: int = 0) -> torch.Tensor"
    )
    assert inspect.getdoc(function) == (
        "x * factor + offset\n\nSchema: tbtest::scale(Tensor x, float factor=2.0, *, int offset=0) -> Tensor"
    )
    assert function.__name__ == "scale"
    from torch_backend.ops.tbtest import scale as imported

    assert imported is function
    assert torch.equal(function(x, factor=3.0), x * 3)
    with pytest.raises(AttributeError, match=r"no custom operators of namespace 'nope'; there are: .*tbtest"):
        _ = torch_backend.ops.nope


def test_is_listed_as_an_extension(library: OperatorLibrary) -> None:
    assert library.overloads[0] == "tbtest::scale"
    sources = operators.operator_sources()
    assert {sources[overload] for overload in library.overloads} == {"extension"}
    assert set(library.overloads) <= set(operators.registrations()["PrivateUse1"])


def test_remove(name: str) -> None:
    x = torch.ones(2, device=name)
    with torch_backend.define_operator(
        "tbgone::twice(Tensor x) -> Tensor", kernel=lambda x: 2 * x, meta={"like": "x"}, autocast="fp32"
    ) as library:
        assert torch.ops.tbgone.twice(x).tolist() == [2, 2]
        assert library.overloads == ("tbgone::twice",)
        assert torch_backend.autocast.policies()["tbgone::twice"] == "fp32"
    assert "tbgone::twice" not in operators.operator_sources()
    assert "tbgone::twice" not in torch_backend.autocast.policies()
    assert not hasattr(torch_backend.ops, "tbgone")
    library.remove()
    with torch_backend.define_operator("tbgone::twice(Tensor x) -> Tensor", kernel=lambda x: 3 * x, meta={"like": "x"}):
        assert torch_backend.ops.tbgone.twice(x).tolist() == [3, 3]


def test_overloads(name: str) -> None:
    x = torch.ones(2, device=name)
    declarations = [
        {"func": "tbover::plus(Tensor x, Tensor y) -> Tensor", "kernel": torch.add, "meta": {"like": "x"}},
        {
            "func": "tbover::plus.number(Tensor x, float y) -> Tensor",
            "kernel": lambda x, y: x + y,
            "meta": {"like": "x"},
            "doc": "With a number.",
        },
    ]
    with torch_backend.load_operators(declarations):
        plus = torch_backend.ops.tbover.plus
        assert plus(x, x).tolist() == [2, 2]
        assert plus(x, 2.5).tolist() == [3.5, 3.5]
        assert "With a number." in plus.__doc__


def test_stays_without_its_handle(name: str, run_python: RunPython) -> None:
    process = run_python(
        f"""
        import gc, torch, torch_backend
        torch_backend.define_operator(
            "acme::twice(Tensor x) -> Tensor", kernel=lambda x: 2 * x, meta={{"like": "x"}}, reroute="aten::erf"
        )
        gc.collect()
        torch_backend.activate("{name}")  # the declaration came first
        x = torch.ones(1, device="{name}")
        print(torch.ops.acme.twice(x).item(), torch.erf(x).item())
        """
    )
    assert process.stdout == "2.0 2.0\n"


def test_a_plugin_without_the_kernel_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=rf"The device library of '{name}' has no kernel for 'tbgone::p'"):
        torch_backend.define_operator("tbgone::p(Tensor x) -> Tensor", kernel="plugin", meta={"like": "x"})
    assert "tbgone::p" not in operators.operator_sources()


def test_existing_names(name: str) -> None:
    with pytest.raises(DeclarationError, match="tbtest::scale: there is an operator of this name already"):
        torch_backend.define_operator("tbtest::scale(Tensor x) -> Tensor", kernel=lambda x: x, meta={"like": "x"})
