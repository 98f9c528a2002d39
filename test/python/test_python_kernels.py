"""torch_backend.kernel: Python functions as the device's kernels."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fixtures import RunPython
from torch.autograd import forward_ad

import torch_backend
from torch_backend import operators

Calls = list[str]


@pytest.fixture
def calls() -> Calls:
    """What kernels of a test append to."""
    return []


@pytest.fixture
def add_kernel(name: str, calls: Calls) -> Iterator[Any]:
    """A kernel for add's out variant."""

    @torch_backend.kernel("aten::add.out")
    def add(self: torch.Tensor, other: Any, *, alpha: Any, out: torch.Tensor) -> None:
        calls.append(f"{out.dtype}{list(out.shape)}")
        out.copy_(torch.sub(self, other, alpha=-alpha))

    yield add
    add.remove()


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def test_serves_calls_and_gives_back(name: str, calls: Calls) -> None:
    x = torch.randn(3, device=name)
    before = torch.sinc(x)
    source = operators.operator_sources()["aten::sinc"]
    assert source != "extension"
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @torch_backend.kernel("aten::sinc")
        def sinc(self: torch.Tensor) -> torch.Tensor:
            calls.append("sinc")
            return torch.full_like(self, 7)

    assert torch.sinc(x).tolist() == [7, 7, 7]
    assert operators.operator_sources()["aten::sinc"] == "extension"
    assert sinc.overloads == ("aten::sinc",)
    assert sinc(torch.zeros(1)).tolist() == [7]  # the function itself, on any device
    sinc.remove()
    sinc.remove()
    assert torch.equal(torch.sinc(x), before)
    assert operators.operator_sources()["aten::sinc"] == source
    assert calls == ["sinc"] * 2


def test_gets_all_arguments(name: str) -> None:
    got = []

    def kernel(self: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
        got.append((dim, dtype))
        return softmax(self if dtype is None else self.to(dtype), dim)

    x = torch.randn(2, 3, device=name)
    with torch_backend.kernel("aten::softmax.int")(kernel):
        torch.testing.assert_close(torch.softmax(x, -1).cpu(), torch.softmax(x.cpu(), -1))
        assert torch.softmax(x, dim=0, dtype=torch.float64).dtype is torch.float64
    assert got == [(-1, None), (0, torch.float64)]


@pytest.mark.parametrize("op", ["add.Tensor", "sort.stable", "_adaptive_avg_pool3d", "special_zeta", "softmax.int"])
def test_not_implemented_is_the_next_source(name: str, op: str, calls: Calls) -> None:
    def decline(*args: Any, **kwargs: Any) -> Any:
        calls.append(op)
        return NotImplemented

    x = torch.rand(2, 4, 4, 4, device=name)
    function: Callable[[torch.Tensor], Any] = {
        "add.Tensor": lambda x: torch.add(x, 2.5, alpha=2),
        "sort.stable": lambda x: torch.sort(x, stable=True, descending=True),
        "_adaptive_avg_pool3d": lambda x: torch.nn.functional.adaptive_avg_pool3d(x, 2),
        "special_zeta": lambda x: torch.special.zeta(x + 2, 3.0),
        "softmax.int": lambda x: torch.softmax(x, 1),
    }[op]
    expected = function(x)
    with torch_backend.kernel(f"aten::{op}")(decline):
        torch.testing.assert_close(function(x), expected, rtol=0, atol=0)
    assert calls == [op]


def test_numbers_keep_their_type_promotion(name: str) -> None:
    x = torch.arange(3, device=name)
    with torch_backend.kernel("aten::add.Tensor")(lambda self, other, *, alpha: NotImplemented):
        assert [(x + other).dtype for other in (1, 2.5, True)] == [torch.int64, torch.float32, torch.int64]
        assert (x + 2.5j).dtype is torch.complex64


def test_calling_the_operator_inside_is_the_next_source(name: str, calls: Calls) -> None:
    @torch_backend.kernel("aten::erf")
    def erf(self: torch.Tensor) -> torch.Tensor:
        calls.append("erf")
        return torch.erf(self) + 1

    x = torch.randn(4, device=name)
    with erf:
        served = torch.erf(x)
        assert torch.equal(torch.erf(x), served)  # the function serves again after it has run
    assert torch.equal(served, torch.erf(x) + 1)
    assert calls == ["erf", "erf"]


def test_errors_of_the_function_are_the_callers(name: str) -> None:
    def fail(self: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("not today")

    x = torch.ones(2, device=name)
    with torch_backend.kernel("aten::erf")(fail):
        for _ in range(2):
            with pytest.raises(ArithmeticError, match="not today"):
                torch.erf(x)
    torch.erf(x)


def test_newer_kernels_cover_older_ones(name: str) -> None:
    x = torch.zeros(1, device=name)

    def constant(value: float) -> Callable[..., torch.Tensor]:
        return lambda self: torch.full_like(self, value)

    first = torch_backend.kernel("aten::erf")(constant(1))
    second = torch_backend.kernel("aten::erf", replace=True)(constant(2))
    third = torch_backend.kernel("aten::erf", replace=True)(lambda self: NotImplemented)
    assert torch.erf(x).item() == 2
    second.remove()
    assert torch.erf(x).item() == 1
    first.remove()
    third.remove()
    assert torch.erf(x).item() == 0


# ---- gradients ----


def test_formulas_of_pytorch_stay(name: str) -> None:
    x = torch.tensor([0.5, 2.0], device=name, requires_grad=True)
    with torch_backend.kernel("aten::sin")(lambda self: torch.zeros_like(self)):
        y = torch.sin(x)
        y.sum().backward()
    assert y.tolist() == [0, 0]
    torch.testing.assert_close(x.grad, torch.cos(x.detach()))


def test_composites_keep_their_gradients(name: str, calls: Calls) -> None:
    def kernel(self: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
        calls.append("softmax")
        return softmax(self, dim)

    x = torch.randn(2, 3, device=name, requires_grad=True)
    expected = torch.autograd.grad(torch.softmax(x, 1)[:, 0].sum(), x)
    with torch_backend.kernel("aten::softmax.int")(kernel):
        assert torch.equal(torch.autograd.grad(torch.softmax(x, 1)[:, 0].sum(), x)[0], expected[0])
        assert calls == []
        with torch.no_grad():
            torch.softmax(x, 1)
        with torch.inference_mode():
            torch.softmax(torch.randn(2, 2, device=name), 1)
        torch.softmax(x.detach(), 1)
    assert calls == ["softmax"] * 3


def test_composites_keep_their_tangents(name: str, calls: Calls) -> None:
    """Forward-mode gradients, which nothing requires beforehand."""

    def kernel(self: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
        calls.append("softmax")
        return softmax(self, dim)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)

    x, tangent = torch.randn(2, 3, device=name), torch.randn(2, 3, device=name)
    expected = torch.func.jvp(function, (x,), (tangent,))[1]
    assert expected.abs().sum() > 0
    with torch_backend.kernel("aten::softmax.int")(kernel), torch.no_grad():
        assert torch.equal(torch.func.jvp(function, (x,), (tangent,))[1], expected)
        with forward_ad.dual_level():
            assert torch.equal(forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent, expected)
        assert calls == []
        function(x)
    assert calls == ["softmax"]


@pytest.mark.parametrize("op", ["softmax.int", "tanh"])  # made of others; with a formula
def test_backward_of_its_own(name: str, op: str, calls: Calls) -> None:
    arity = 3 if op == "softmax.int" else 1

    def kernel(self: torch.Tensor, *rest: Any) -> torch.Tensor:
        calls.append("forward")
        return torch.exp(self)

    made = torch_backend.kernel(f"aten::{op}")(kernel)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        assert len(inputs) == arity
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        calls.append("backward")
        (output,) = ctx.saved_tensors
        return (10 * grad * output, *[None] * (arity - 1))

    assert made.register_autograd(backward, setup_context=setup_context) is backward
    x = torch.randn(2, 3, device=name, requires_grad=True)
    function = (lambda: torch.softmax(x, 1)) if op == "softmax.int" else (lambda: torch.tanh(x))
    with made:
        y = function()
        y.sum().backward()
        torch.testing.assert_close(x.grad, 10 * y.detach())
        assert calls == ["forward", "backward"]
    assert x.grad is not None
    x.grad = None
    function().sum().backward()
    assert calls == ["forward", "backward"]


def test_backward_of_attention(name: str) -> None:
    def attention(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> torch.Tensor:
        return query + value

    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None, 3 * grad, None, None, None

    q, k, v = (torch.randn(1, 2, 3, 4, device=name, requires_grad=True) for _ in range(3))
    with torch_backend.kernel("aten::scaled_dot_product_attention", backward=backward)(attention):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert q.grad is not None
    assert v.grad is not None
    assert q.grad.unique().tolist() == [1]
    assert k.grad is None
    assert v.grad.unique().tolist() == [3]


def test_backward_with_numbers(name: str) -> None:
    x = torch.ones(2, device=name, requires_grad=True)
    with torch_backend.kernel("aten::mul.Tensor", backward=lambda ctx, grad: (grad * 2, None))(
        lambda self, other: NotImplemented
    ):
        (x * 5).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


def test_backward_of_what_writes(name: str, add_kernel: Any) -> None:
    with pytest.raises(ValueError, match=r"aten::add.out cannot have a backward of its own: it writes"):
        add_kernel.register_autograd(lambda ctx, grad: grad)


# ---- out variants ----


def test_forms_are_derived(add_kernel: Any, name: str, calls: Calls) -> None:
    assert add_kernel.overloads == ("aten::add.out", "aten::add.Tensor", "aten::add_.Tensor")
    x, i = torch.randn(2, 3, device=name), torch.arange(3, device=name)
    cases: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda x, i: x + i,
        lambda x, i: i + 1.5,
        lambda x, i: 2 + i,
        lambda x, i: torch.add(x, i, alpha=3),
        lambda x, i: x.clone().add_(i, alpha=2),
        lambda x, i: x.clone().double().add_(i),
        lambda x, i: x.t().contiguous().t() + i,
        lambda x, i: torch.add(x, i, out=torch.empty(0, device=x.device)),
        lambda x, i: torch.add(x, i, out=torch.empty(2, 3, device=x.device, dtype=torch.float64)),
        lambda x, i: x + torch.tensor(2.0, dtype=torch.float64),
        lambda x, i: i + torch.tensor(2.0, dtype=torch.float64),
    ]
    for number, case in enumerate(cases):
        actual, expected = case(x, i), case(x.cpu(), i.cpu())
        assert actual.device.type == name
        assert actual.stride() == expected.stride(), number
        torch.testing.assert_close(actual.cpu(), expected)
    assert len(calls) == len(cases)
    assert calls[8] == "torch.float32[2, 3]"  # the kernel sees the operator's dtype, the caller gets the one asked for


def test_in_place_is_the_same_tensor(add_kernel: Any, name: str, calls: Calls) -> None:
    x = torch.arange(4.0, device=name)
    pointer = x.data_ptr()
    assert x.add_(1) is x
    x[1:].add_(x[:-1])  # overlapping: as if the operands had been read before
    assert x.data_ptr() == pointer
    assert x.tolist() == [1, 3, 5, 7]
    assert len(calls) == 2


def test_wrong_outputs(add_kernel: Any, name: str, calls: Calls) -> None:
    x, i = torch.randn(2, 3, device=name), torch.arange(3, device=name)
    with pytest.raises(RuntimeError, match=r"can't be cast to the desired output type torch\.int64"):
        i.add_(1.5)
    with pytest.raises(RuntimeError, match=r"result has shape .2, 3., which does not fit"):
        x[0].add_(x)
    with pytest.warns(UserWarning, match="resized since it had shape"):
        assert torch.add(x, i, out=torch.empty(1, device=name)).shape == (2, 3)
    assert len(calls) == 1


def test_derived_forms_can_decline(name: str, calls: Calls) -> None:
    def decline(*args: Any, **kwargs: Any) -> Any:
        calls.append("add")
        return NotImplemented

    x = torch.ones(2, device=name)
    with torch_backend.kernel("aten::add.out")(decline):
        assert (x + 1).tolist() == x.clone().add_(1).tolist() == torch.add(x, 1, out=x.clone()).tolist() == [2, 2]
    assert calls == ["add"] * 3


def test_not_only_pointwise(name: str) -> None:
    def cumsum(self: torch.Tensor, dim: int, *, dtype: Any, out: torch.Tensor) -> None:
        out[0] = self[0]
        for index in range(1, len(self)):
            out[index] = out[index - 1] * 1 + self[index]

    def minimum(self: torch.Tensor, dim: int, keepdim: bool, *, min: torch.Tensor, min_indices: torch.Tensor) -> None:
        min.fill_(3)
        min_indices.fill_(4)

    x = torch.arange(1, 5, device=name)
    with torch_backend.kernel("aten::cumsum.out")(cumsum):
        assert x.float().cumsum_(0).tolist() == [1, 3, 6, 10]
        assert x.cumsum(0).tolist() == [1, 3, 6, 10]
    with torch_backend.kernel("aten::min.dim_min")(minimum):
        result = torch.min(x.reshape(2, 2), 1)
    assert result.values.tolist() == [3, 3]
    assert result.indices.tolist() == [4, 4]


def test_a_function_for_the_form_goes_before(add_kernel: Any, name: str, calls: Calls) -> None:
    x = torch.ones(2, device=name)
    with torch_backend.kernel("aten::add.Tensor")(lambda self, other, *, alpha: torch.zeros_like(self)):
        assert (x + 1).tolist() == [0, 0]
        assert calls == []
    assert (x + 1).tolist() == [2, 2]


# ---- wrong use ----


@pytest.mark.parametrize(
    ("overload", "message"),
    [
        ("erf", "'erf' has no namespace; write for example 'aten::erf'"),
        ("aten::softmax", "no overload 'aten::softmax'; aten::softmax has .*aten::softmax.int, aten::softmax.int_out"),
        ("aten::sofmax.int", "no operator 'aten::sofmax.int' in torch .* Did you mean aten::softmax.int"),
        ("acme::nothing_like_it", r"no operator 'acme::nothing_like_it' in torch [^ ]+\.$"),
    ],
)
def test_unknown_overload(overload: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch_backend.kernel(overload)


@pytest.mark.parametrize(
    ("overload", "function", "message"),
    [
        ("softmax.int", lambda self: 0, "takes 1 positional arguments, the operator has 3 .no 'dim', 'dtype'"),
        ("softmax.int", lambda self, dtype, dim: 0, "its argument 2 is 'dtype', the operator's is 'dim'"),
        ("softmax.int", lambda a, b, c, *, d: 0, "the operator has no argument 'd'"),
        ("add.out", lambda a, b, alpha: 0, "does not take the keyword argument 'out'"),
        ("add.Tensor", lambda a, b: 0, "does not take the keyword argument 'alpha'"),
    ],
)
def test_wrong_parameters(overload: str, function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message) as raised:
        torch_backend.kernel(f"aten::{overload}")(function)
    assert f"{__file__}:" in str(raised.value)


@pytest.mark.parametrize("function", [lambda *args: 0, lambda a, b, c, d=1: 0, lambda a, b, c, **rest: 0])
def test_right_parameters(function: Any) -> None:
    torch_backend.kernel("aten::softmax.int")(function).remove()


def test_twice(name: str) -> None:
    with torch_backend.kernel("aten::erf")(lambda self: self):
        with pytest.raises(RuntimeError, match=rf"has a Python kernel already: .*{__file__}.*replace=True"):
            torch_backend.kernel("aten::erf")(lambda self: self)
    torch_backend.kernel("aten::erf")(lambda self: self).remove()


def test_setup_context_alone() -> None:
    with pytest.raises(ValueError, match="setup_context without backward"):
        torch_backend.kernel("aten::erf", setup_context=print)


def test_before_activation(run_python: RunPython) -> None:
    process = run_python(
        """
        import torch, torch_backend

        @torch_backend.kernel("aten::erf")
        def erf(self):
            return torch.erf(self) + 5

        @torch_backend.kernel("aten::sin")
        def sin(self):
            return self

        sin.remove()
        assert erf.overloads == ()
        torch_backend.activate("xcpu")
        assert erf.overloads == ("aten::erf",)
        x = torch.zeros(1, device="xcpu")
        print(torch.erf(x).item(), torch.sin(x).item(), torch_backend.operators.operator_sources()["aten::erf"])
        erf.remove()
        print(torch.erf(x).item(), torch_backend.operators.operator_sources()["aten::erf"])
        """,
        warnings=["error"],
    )
    assert process.stdout == "5.0 0.0 extension\n0.0 aten\n"


def test_import_stays_light(run_python: RunPython) -> None:
    run_python("import sys, torch_backend; assert 'torch' not in sys.modules and 'yaml' not in sys.modules")
