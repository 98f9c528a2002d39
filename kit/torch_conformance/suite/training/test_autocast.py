"""torch.autocast runs on the device what can run in a short dtype."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_conformance import needs, routes
from torch_conformance.suite.training._models import CASES, Case
from torch_conformance.suite.training._training import batches, gradients_of, model_of, moved

pytestmark = needs.feature("autocast")

DTYPES = [pytest.param(getattr(torch, name), id=name, marks=needs.dtype(name)) for name in ("float16", "bfloat16")]


def _backward(case: Case, device: str, dtype: torch.dtype | None) -> tuple[Tensor, list[Tensor]]:
    """Loss and gradients of one batch, with autocast to ``dtype`` unless that is None."""
    model = model_of(case.make).to(device)
    x, y = moved(batches(case.sample, 1)[0], device)
    with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        output = model(x)
        loss = F.cross_entropy(output, y)
    if dtype is not None:
        assert output.dtype is dtype, f"the output of the last linear layer has {output.dtype}"
        assert loss.dtype is torch.float32, f"a loss, which autocast runs in float32, has {loss.dtype}"
    loss.backward()
    return loss.detach(), gradients_of(model)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mlp", "cnn", "transformer"])
def test_models_under_autocast(device: str, dtype: torch.dtype, kind: str) -> None:
    """Under autocast a model's loss and float32 gradients are, within the short dtype's precision, those of float32."""
    expected_loss, expected = _backward(CASES[kind], "cpu", None)
    loss, gradients = _backward(CASES[kind], device, dtype)
    # Values are rounded some ten times on the way to a loss, and as often on the way back.
    precision = torch.finfo(dtype).eps
    torch.testing.assert_close(loss.cpu(), expected_loss, rtol=10 * precision, atol=10 * precision)
    for index, (gradient, right) in enumerate(zip(gradients, expected, strict=True)):
        assert gradient.dtype is torch.float32, f"gradient {index} of a float32 parameter has {gradient.dtype}"
        assert gradient.device.type == device
        distance = (gradient.cpu() - right).norm() / (right.norm() + 1e-3)
        assert distance < 30 * precision, f"gradient {index} differs from that of float32 by {distance:.1%} of its norm"


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_that_keep_their_precision(device: str, dtype: torch.dtype) -> None:
    """Under autocast matrix products run in the short dtype and losses in float32, as do softmax and norms on GPUs."""
    x = torch.ones(4, 4, device=device)
    with torch.autocast(device, dtype=dtype):
        assert torch.is_autocast_enabled(device)
        product = x @ x
        assert product.dtype is dtype
        assert F.linear(x, x).dtype is dtype
        # What torch.amp documents for every device, and for CUDA, which torch_backend follows.
        results = {"mse_loss": F.mse_loss(product, product * 2)}
        if device == "cuda" or routes.has("torch_backend"):
            results |= {"softmax": product.softmax(1), "norm": torch.linalg.vector_norm(product)}
        for name, result in results.items():
            assert result.dtype is torch.float32, f"{name} of {dtype} gives {result.dtype}"
        with torch.autocast(device, enabled=False):
            assert (x @ x).dtype is torch.float32
    assert not torch.is_autocast_enabled(device)
    assert (x @ x).dtype is torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_is_cast_once_and_gets_every_gradient(device: str, dtype: torch.dtype) -> None:
    """A weight that is used twice under autocast gets the sum of both gradients, in float32."""
    weight = torch.full((2, 2), 0.5, device=device, requires_grad=True)
    x = torch.ones(1, 2, device=device)
    with torch.autocast(device, dtype=dtype):
        loss = (x @ weight).sum() + (2 * x @ weight).sum()
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32
    assert weight.grad.tolist() == [[3, 3], [3, 3]]
    with torch.no_grad():
        weight.fill_(2)
    with torch.autocast(device, dtype=dtype):
        after = (x @ weight).tolist()
    assert after == [[4, 4]], "autocast used the weight as it was before it changed"


@pytest.mark.parametrize("dtype", DTYPES)
def test_custom_functions_under_autocast(device: str, dtype: torch.dtype) -> None:
    """A custom function with custom_fwd and custom_bwd sees float32 inputs, and autocast off, in both directions."""
    seen: list[object] = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32)
        def forward(ctx: object, x: Tensor) -> Tensor:
            seen.append((x.dtype, torch.is_autocast_enabled(device)))
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=device)
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            seen.append((gradient.dtype, torch.is_autocast_enabled(device)))
            return gradient * 2

    layer = nn.Linear(3, 3).to(device)
    with torch.autocast(device, dtype=dtype):
        result = Double.apply(layer(torch.ones(2, 3, device=device)))
    result.sum().backward()
    assert seen == [(torch.float32, False)] * 2
