"""Compiled models compute what they compute without."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_backend.testing import needs
from torch_backend.testing.suite.compile._support import compiled

pytestmark = needs.feature("compile")


class Attention(nn.Module):
    """One block of a transformer."""

    def __init__(self) -> None:
        """A model of 16 tokens."""
        super().__init__()
        self.embedding = nn.Embedding(16, 12)
        self.projection = nn.Linear(12, 36)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch of tokens."""
        x = self.embedding(x)
        q, k, v = self.projection(self.norm(x)).unflatten(-1, (3, 2, 6)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        scores: Tensor = self.head(x.mean(1))
        return scores


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))


def _cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


MODELS = {
    "mlp": (_mlp, lambda generator: torch.randn(5, 8, generator=generator)),
    "cnn": (_cnn, lambda generator: torch.randn(2, 3, 8, 8, generator=generator)),
    "attention": (Attention, lambda generator: torch.randint(16, (3, 7), generator=generator)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_forward_and_backward(device: str, kind: str) -> None:
    """A compiled model has the outputs, gradients and running statistics of the same model that is not compiled."""
    make, sample = MODELS[kind]
    model = make().to(device)
    twin = copy.deepcopy(model)
    fast = compiled(model)
    generator = torch.Generator().manual_seed(0)
    for number in range(2):
        x = sample(generator).to(device)
        actual, expected = fast(x), twin(x)
        torch.testing.assert_close(actual, expected, msg=lambda text, n=number: f"the output of batch {n}: {text}")
        for output in (actual, expected):
            output.square().mean().backward()
    for (name, parameter), right in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert parameter.grad is not None, f"{name} has no gradient"
        torch.testing.assert_close(parameter.grad, right.grad, msg=lambda text, n=name: f"the gradient of {n}: {text}")
    for (name, buffer), right in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(buffer, right, msg=lambda text, n=name: f"the buffer {n}: {text}")


def test_inference(device: str) -> None:
    """A compiled model predicts in inference mode what it predicts without."""
    model = _mlp().to(device).eval()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(model)(x), model(x))


def test_training_steps(device: str) -> None:
    """Steps of a compiled forward and backward pass and an ordinary optimizer are those without compiling."""
    model = _mlp().to(device)
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(5, 8, generator=generator).to(device) for _ in range(4)]
    for forward, parameters in ((compiled(model), model.parameters()), (twin, twin.parameters())):
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        for x in data:
            optimizer.zero_grad()
            forward(x).square().mean().backward()
            optimizer.step()
    for (name, parameter), right in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, right, msg=lambda text, n=name: f"{n} after four steps: {text}")


@pytest.mark.parametrize("dtype", [pytest.param(d, marks=needs.dtype(d)) for d in ("float16", "bfloat16")])
def test_autocast(device: str, dtype: str) -> None:
    """Autocast inside of compiled code casts what it casts outside."""
    short = getattr(torch, dtype)

    def run(x: Tensor) -> Tensor:
        with torch.autocast(device, dtype=short):
            return (x @ x).relu()

    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).to(device)
    actual = compiled(run)(x)
    assert actual.dtype is short
    torch.testing.assert_close(actual, run(x))
