"""torch.compile as scripts call it, with its default backend: what it computes, returns, changes, draws and keeps."""

import copy
import gc
import io
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_conformance import needs, routes
from torch_conformance.threads import in_numbered_threads

# A device without code generation runs graphs as captured, and says so.
pytestmark = [needs.feature("inductor"), pytest.mark.filterwarnings("ignore:torch.compile runs graphs of")]

STEPS = 20


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class GPT(nn.Module):
    """A small language model, with weights that the embedding and the head share."""

    def __init__(self) -> None:
        """A model of 16 tokens."""
        super().__init__()
        self.tokens, self.positions = nn.Embedding(16, 16), nn.Embedding(8, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 16, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        x = x + self.mlp(self.norms[1](x))
        scores: Tensor = self.head(self.norms[2](x))
        return scores


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Tensor]]] = {
    "cnn": (_cnn, lambda generator: torch.randn(2, 3, 8, 8, generator=generator)),
    "gpt": (GPT, lambda generator: torch.randint(16, (3, 8), generator=generator)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", MODELS)
def test_training(device: str, kind: str) -> None:
    """Twenty steps of a compiled model with AdamW are those of the same model that is not compiled."""
    make, sample = MODELS[kind]
    torch.manual_seed(0)
    model = make().to(device)
    twin = copy.deepcopy(model)

    def train(model: nn.Module, forward: Callable[[Tensor], Tensor]) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = forward(sample(generator).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train(model, torch.compile(model)) == pytest.approx(train(twin, twin), rel=2e-3)


@needs.feature("generator")
def test_dropout(device: str, backend: ModuleType) -> None:
    """Training with dropout repeats with the same seed of the device, and differs with another."""
    layer = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.GELU(), nn.Dropout(0.2)).to(device)
    fast = torch.compile(layer)
    x = torch.linspace(-1, 1, 5 * 16).reshape(5, 16).to(device)

    def losses(seed: int) -> list[float]:
        backend.manual_seed(seed)
        found = []
        for _ in range(2):
            layer.zero_grad()
            fast(x).square().sum().backward()
            found.append(float(sum(p.grad.abs().sum() for p in layer.parameters())))
        return found

    one, same, other = losses(1), losses(1), losses(2)
    assert one == same, "the same seed dropped other elements"
    assert one[0] != one[1], "two steps dropped the same elements"
    assert one != other, "another seed dropped the same elements"


@needs.feature("generator")
def test_random_operators(device: str, backend: ModuleType) -> None:
    """Operators that draw in compiled code draw from the device's generator and leave the CPU's alone."""
    run = torch.compile(lambda p: (torch.multinomial(p, 3), torch.rand(3, device=device), torch.bernoulli(p)))
    p = torch.full((1000,), 0.5, device=device)
    run(p)
    before = torch.default_generator.get_state()
    backend.manual_seed(3)
    first = [x.cpu() for x in run(p)]
    second = [x.cpu() for x in run(p)]
    backend.manual_seed(3)
    assert all(map(torch.equal, [x.cpu() for x in run(p)], first))
    assert not any(map(torch.equal, first, second))
    assert 400 < int(first[2].sum()) < 600
    assert torch.equal(torch.default_generator.get_state(), before)


def test_what_is_returned(device: str) -> None:
    """Inputs come back as themselves, views share their memory, and results are where the code says."""

    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        z = x * y
        there = z.to("cpu", copy=True)
        return x, x[1:], z, z.t(), y, there, there.to(device), z.to(torch.float64) if y.is_cpu else z.int()

    def inputs() -> tuple[Tensor, Tensor]:
        return torch.zeros(3, 3, device=device), torch.full((3, 3), 2.0, device=device)

    x, y = inputs()
    actual, expected = torch.compile(run)(x, y), run(*inputs())
    for ours, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, right)
        assert ours.stride() == right.stride()
    same, part, z, turned, other, there, back, _ = actual
    assert same is x
    assert other is y
    x.fill_(7)
    z.fill_(5)
    assert part.tolist() == [[7] * 3] * 2, "a view of an input does not share its memory"
    assert turned.tolist() == [[5] * 3] * 3, "a view of a result does not share its memory"
    assert there.tolist() == back.tolist() == [[2] * 3] * 3


def test_shapes_that_change(device: str) -> None:
    """Compiled with dynamic shapes, and with sizes that only the values tell, results are those without compiling."""

    def run(x: Tensor) -> Tensor:
        return (x.softmax(0) * x.shape[0]).cumsum(0) + x.mean()

    fast = torch.compile(run, dynamic=True)
    for size in (3, 8, 33):
        x = torch.linspace(-1, 1, size, device=device)
        torch.testing.assert_close(fast(x), run(x))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        positive = torch.compile(lambda x: x[x > 0] * 2, fullgraph=True)
        assert positive(torch.tensor([1.0, -1.0, 3.0], device=device)).tolist() == [2, 6]


@needs.feature("autocast")
def test_precision(device: str) -> None:
    """Autocast, integers and checkpoints in compiled code are what they are outside."""

    def run(x: Tensor, n: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            y = checkpoint(lambda x: F.gelu(x @ x), x, use_reentrant=False)
        return y.float() * (n // 2 % 3)

    n = torch.arange(36, device=device).reshape(6, 6)
    x = torch.linspace(-1, 1, 36).reshape(6, 6).to(device).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    actual, expected = torch.compile(run)(x, n), run(twin, n)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
    actual.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, twin.grad, rtol=2e-2, atol=5e-2)


def test_graph_breaks(device: str) -> None:
    """Code between two graphs sees what the first has computed."""

    def run(x: Tensor) -> Tensor:
        x = x * 2
        return x + 1 if x.sum().item() > 0 else x - 1

    fast = torch.compile(run)
    assert fast(torch.ones(3, device=device)).tolist() == [3] * 3
    assert fast(-torch.ones(3, device=device)).tolist() == [-3] * 3


@pytest.mark.thorough
def test_optimizer(device: str) -> None:
    """A compiled optimizer's steps are those of the optimizer."""
    results = []
    for fast in (False, True):
        weights = [torch.linspace(0, 1, size, device=device).requires_grad_() for size in (3, 50)]
        optimizer = torch.optim.AdamW(weights, lr=0.1)
        step: Any = torch.compile(optimizer.step) if fast else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            sum(w.square().sum() for w in weights).backward()  # type: ignore[union-attr]
            step()
        results.append(weights)
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


@needs.feature("memory statistics")
def test_memory(device: str, backend: ModuleType) -> None:
    """Results of compiled code are counted as memory of the device, and nothing stays when they are gone."""
    run = torch.compile(lambda x: (x.sin() @ x).relu())
    x = torch.ones(256, 256, device=device)

    def held() -> int:
        gc.collect()
        backend.synchronize()
        return int(backend.memory_allocated())

    run(x)
    before = held()
    results = [run(x) for _ in range(4)]
    taken = held() - before
    assert taken == 4 * x.nbytes if routes.has("torch_backend") else taken >= 4 * x.nbytes
    del results
    assert held() == before


@needs.feature("streams")
def test_streams(device: str, backend: ModuleType) -> None:
    """Compiled code comes after the work before it on its stream, and before the work after it."""
    run = torch.compile(lambda x: x * 2 + 1)
    x = torch.zeros(100_000, device=device)
    run(x)
    side = backend.Stream()
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        for number in range(20):
            x.fill_(number)
            y = run(x)
            x.fill_(-1)
            assert y[::1000].unique().tolist() == [2 * number + 1]
    side.synchronize()


@pytest.mark.thorough
def test_threads(device: str) -> None:
    """Threads compile and run at once."""

    def work(number: int) -> None:
        run = torch.compile(lambda x: (x * number).sin().sum(0), dynamic=False)
        x = torch.linspace(0, 1, 12).reshape(4, 3).to(device).requires_grad_()
        y = run(x)
        y.sum().backward()
        torch.testing.assert_close(y.cpu(), (x.detach().cpu() * number).sin().sum(0))
        assert x.grad is not None
        torch.testing.assert_close(x.grad.cpu(), (x.detach().cpu() * number).cos() * number)

    in_numbered_threads(4, work)


@pytest.mark.thorough
def test_threads_train_one_function(device: str) -> None:
    """On one stream, beside operators that take the memory that graphs give back."""
    run = torch.compile(lambda x, weight: F.gelu(x @ weight).softmax(-1).cumsum(0), dynamic=False)
    x, weight = torch.linspace(-1, 1, 128).reshape(16, 8), torch.linspace(-2, 2, 96).reshape(8, 12).requires_grad_()
    F.gelu(x @ weight).softmax(-1).cumsum(0).square().sum().backward()

    def train(times: int) -> None:
        for _ in range(times):
            there, parameter = x.to(device), weight.detach().to(device).requires_grad_()
            run(there, parameter).square().sum().backward()
            for size in (16, 96, 192):
                torch.full((size,), torch.nan, device=device)
            torch.testing.assert_close(parameter.grad.cpu(), weight.grad, rtol=1e-3, atol=1e-4)  # type: ignore[union-attr]

    train(1)  # compiles
    in_numbered_threads(6, lambda _: train(25))


@pytest.mark.thorough
def test_exported(device: str) -> None:
    """An exported program is compiled like the model that it was made of."""
    model = _cnn().to(device).eval()
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).to(device)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), file)
    file.seek(0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(torch.export.load(file).module())(x), model(x))
