"""Compiled models compute what they compute without."""

import copy

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._prims.rng_prims import run_and_save_rng_state
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_conformance import needs, routes
from torch_conformance.suite.compile._support import compiled, counter


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


class Recurrent(nn.Module):
    """An LSTM with two layers, and what comes out of it at the end."""

    def __init__(self) -> None:
        """A model of sequences of vectors."""
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch of sequences."""
        scores: Tensor = self.head(self.lstm(x)[0][:, -1])
        return scores


def _transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(12, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS = {
    "mlp": (_mlp, lambda generator: torch.randn(5, 8, generator=generator)),
    "cnn": (_cnn, lambda generator: torch.randn(2, 3, 8, 8, generator=generator)),
    "lstm": (Recurrent, lambda generator: torch.randn(2, 5, 6, generator=generator)),
    "transformer": (_transformer, lambda generator: torch.randn(2, 5, 12, generator=generator)),
    "attention": (Attention, lambda generator: torch.randint(16, (3, 7), generator=generator)),
}

NOT_ONE_GRAPH = {"lstm"}
"""Models that torch.compile never puts into one graph, on any device: LSTM layers run between graphs."""


@pytest.mark.parametrize("kind", MODELS)
def test_forward_and_backward(device: str, kind: str) -> None:
    """A compiled model has the outputs, gradients and running statistics of the same model that is not compiled."""
    make, sample = MODELS[kind]
    model = make().to(device)
    twin = copy.deepcopy(model)
    fast = torch.compile(model, backend="aot_eager") if kind in NOT_ONE_GRAPH else compiled(model)
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


@pytest.mark.parametrize("compile_step", [False, True], ids=["eager step", "compiled step"])
def test_training_steps(device: str, compile_step: bool) -> None:
    """Steps of a compiled forward and backward pass, and of an optimizer, are those without compiling."""
    model = _mlp().to(device)
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(5, 8, generator=generator).to(device) for _ in range(4)]
    for forward, parameters, fast in ((compiled(model), model.parameters(), True), (twin, twin.parameters(), False)):
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        step = torch.compile(optimizer.step, backend="aot_eager") if fast and compile_step else optimizer.step
        for x in data:
            optimizer.zero_grad()
            forward(x).square().mean().backward()
            step()
    for (name, parameter), right in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, right, msg=lambda text, n=name: f"{n} after four steps: {text}")


@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_checkpointed_dropout(device: str, reentrant: bool) -> None:
    """A compiled block that is computed again in the backward pass drops the same elements again."""
    repeats = getattr(torch._C.DispatchKey, device.upper(), None) in run_and_save_rng_state.py_kernels
    if not repeats and not routes.has("torch_backend"):
        needs.not_offered(f"torch._prims.rng_prims names the devices whose draws it repeats, and not {device}")
    torch.compiler.reset()

    def block(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5).sin()

    run = torch.compile(lambda x: checkpoint(block, x, use_reentrant=reentrant) * 2, backend="aot_eager")
    x = torch.full((1000,), 0.5, device=device, requires_grad=True)
    y = run(x)
    y.sum().backward()
    assert x.grad is not None
    kept = y.detach() != 0
    dropped_again = torch.where(kept, 4 * torch.cos(torch.tensor(1.0)).item(), 0.0)
    torch.testing.assert_close(x.grad, dropped_again, msg=lambda text: f"other elements were dropped: {text}")
    assert 300 < int(kept.sum()) < 700


@needs.feature("autocast")
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
    torch.testing.assert_close(actual.cpu(), run(x).cpu())


def test_models_of_any_batch_size(device: str) -> None:
    """A model that is compiled with dynamic shapes is compiled once for training with batches of many sizes."""
    with counter() as compilations:
        model = _mlp().to(device)
        fast = torch.compile(model, backend=compilations, dynamic=True)
        for size in (2, 3, 7, 16):
            x = torch.randn(size, 8, generator=torch.Generator().manual_seed(size)).to(device)
            y = fast(x)
            torch.testing.assert_close(y, model(x))
            y.sum().backward()
    assert compilations.frame_count == 1, f"four batch sizes were compiled {compilations.frame_count} times"


def test_graphs_are_whole(device: str) -> None:
    """Nothing of the device ends the graph of a model: there is one, without breaks."""
    torch.compiler.reset()
    model = Attention().to(device)
    explanation = torch._dynamo.explain(model)(torch.zeros(3, 7, dtype=torch.int64, device=device))
    reasons = [str(reason.reason) for reason in explanation.break_reasons]
    assert (explanation.graph_count, reasons) == (1, []), f"{explanation.graph_count} graphs, because {reasons}"
