"""Gradients: accumulated, clipped, twice differentiated, watched, and kept on the host."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.training._models import mlp, vectors
from torch_conformance.suite.training._training import batches, gradients_of, model_of, moved


def test_accumulation(device: str) -> None:
    """Gradients of four batches, added up, are those of all batches in one."""
    model, data = model_of(mlp).to(device), batches(vectors, 4)
    for batch in data:
        x, y = moved(batch, device)
        (F.cross_entropy(model(x), y) / 4).backward()
    gradients = [gradient.clone() for gradient in gradients_of(model)]
    model.zero_grad()
    x, y = (torch.cat(parts).to(device) for parts in zip(*data, strict=True))
    F.cross_entropy(model(x), y).backward()
    torch.testing.assert_close(gradients, gradients_of(model))


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping_by_norm(device: str, norm: float, foreach: bool) -> None:
    """clip_grad_norm_ returns the norm of all gradients and scales them to the norm that is allowed."""
    results = []
    for where, form in (("cpu", False), (device, foreach)):
        model = model_of(mlp).to(where)
        x, y = moved(batches(vectors, 1)[0], where)
        F.cross_entropy(model(x), y).backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=norm, foreach=form)
        results.append([total.cpu(), *(gradient.cpu() for gradient in gradients_of(model))])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


def test_clipping_finds_bad_gradients(device: str) -> None:
    """clip_grad_norm_ with error_if_nonfinite raises if a gradient is not finite."""
    weights = [torch.ones(1000, device=device, requires_grad=True) for _ in range(3)]
    for weight in weights:
        weight.grad = torch.ones(1000, device=device)
    assert weights[2].grad is not None
    weights[2].grad[999] = float("nan")
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(weights, 1.0, error_if_nonfinite=True)


def test_clipping_by_value(device: str) -> None:
    """clip_grad_value_ cuts every element of every gradient."""
    weight = torch.zeros(3, device=device, requires_grad=True)
    weight.grad = torch.tensor([-5.0, 0.25, 5.0], device=device)
    nn.utils.clip_grad_value_([weight], 0.5)
    assert weight.grad.tolist() == [-0.5, 0.25, 0.5]


def test_double_backward(device: str) -> None:
    """The gradient of a gradient's norm is that of the CPU."""

    def penalty(where: str) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(3, 4, generator=generator).to(where).requires_grad_()
        weight = torch.randn(4, 2, generator=generator).to(where)
        (gradient,) = torch.autograd.grad(torch.tanh(x @ weight).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    torch.testing.assert_close(penalty(device), penalty("cpu"))


@needs.dtype("float64")
def test_numerical_gradients(device: str) -> None:
    """Gradients of a chain of operators and of a convolution are those that finite differences give."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, generator=generator).to(device).requires_grad_()
    w = torch.randn(2, 1, 3, 3, dtype=torch.float64, generator=generator).to(device).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: F.gelu(t).softmax(1).cumsum(0), x)
    assert torch.autograd.gradcheck(lambda t, k: F.conv2d(t[None, None], k), (x.detach(), w))


def test_hooks_and_custom_functions(device: str) -> None:
    """A function with its own backward, and a hook on a gradient, see tensors of the device."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradients[0] * 2 + x.detach() * 0

    seen: list[torch.device] = []
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device))
    Double.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    assert seen == [x.device]


@needs.feature("pinned memory")
def test_saved_tensors_on_the_host(device: str) -> None:
    """What backward needs can wait in pinned host memory between the passes."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x.sin() * x).sum()
    y.backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() + x.detach().sin())


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_detection(device: str) -> None:
    """Anomaly detection finds the backward function that made a nan."""
    x = torch.zeros(2, device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        (x.sqrt() * 0).sum().backward()


def test_vectorized_gradients(device: str) -> None:
    """torch.func gives gradients per sample that are those of the samples one by one."""
    model = model_of(mlp).to(device)
    x, y = moved(batches(vectors, 1)[0], device)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(weights: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        scores: Tensor = torch.func.functional_call(model, weights, (one[None],))
        return F.cross_entropy(scores, target[None])

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    one_by_one = [torch.func.grad(loss)(parameters, *sample) for sample in zip(x[:3], y[:3], strict=True)]
    for index, gradients in enumerate(one_by_one):
        for name, gradient in gradients.items():
            torch.testing.assert_close(together[name][index], gradient, rtol=1e-4, atol=1e-6)
