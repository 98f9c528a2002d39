"""What scripts do with torch.compile besides calling it: its arguments, control flow, and libraries on top of it."""

import copy
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint
from torch_conformance import needs
from torch_conformance.threads import in_numbered_threads

# What a device does not do with a graph is said in a warning, and it computes the same.
pytestmark = [
    needs.feature("inductor"),
    pytest.mark.filterwarnings("ignore:torch.compile (runs|puts no) graphs of"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _gradients(run: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """What ``run`` returns, and the gradients of its inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = run(*leaves)
    result.square().sum().backward()
    return [result.detach(), *(x.grad for x in leaves if x.grad is not None)]


@needs.feature("torch_backend")
def test_backend_of_the_devices_name(device: str) -> None:
    """The device's name is a backend of torch.compile, which takes modes and options as the default backend does."""
    name = torch.device(device).type
    x = torch.ones(3, device=device)
    run = torch.compile(lambda x: x * 2 + 1, backend=name, mode="max-autotune-no-cudagraphs")
    assert run(x).tolist() == [3, 3, 3]
    assert name in torch._dynamo.list_backends()


@pytest.mark.thorough
def test_modes(device: str) -> None:
    """Modes that ask for graphs of the device, forward and backward."""
    run = torch.compile(lambda x: x.sin() * 2, mode="reduce-overhead")
    x = torch.linspace(0, 1, 7, device=device)
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        for actual, expected in zip(_gradients(run, x), _gradients(lambda x: x.sin() * 2, x), strict=True):
            torch.testing.assert_close(actual, expected)


@needs.devices(2)
def test_several_devices(device: str) -> None:
    """A function compiled for one device runs on another, and one graph may have tensors on both."""
    first, second = (torch.arange(6.0, device=f"{device}:{index}").view(2, 3) for index in (0, 1))
    rows = torch.compile(lambda x: (x * 2 + 1).sum(1) + x[:, 0])
    for x in (first, second, first):
        result = rows(x)
        assert (result.device, result.tolist()) == (x.device, [9, 30])

    run = torch.compile(lambda x, y: (x + y.to(x.device), y * 2, torch.ones(2, device=y.device)))
    results = run(first, second)
    assert [result.device for result in results] == [first.device, second.device, second.device]
    expected = [first.cpu() * 2, first.cpu() * 2, torch.ones(2)]
    torch.testing.assert_close([result.cpu() for result in results], expected)


@needs.feature("torch_backend")
def test_streams_in_a_graph(device: str, backend: ModuleType) -> None:
    """Code that chooses streams, waits for them and for the device does so when it is compiled."""

    def run(x: Tensor, side: torch.Stream) -> Tensor:
        x = x * 2
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            y = x + 1
        backend.current_stream().wait_stream(side)
        backend.synchronize()
        return y * 3

    x = torch.ones(100_000, device=device)
    assert torch.compile(run)(x, backend.Stream()).unique().tolist() == [9]


_DRAWS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.rand_like,
    torch.randn_like,
    lambda x: torch.randint_like(x, 1000),
    lambda x: torch.rand(64, device=x.device),
    lambda x: torch.randn(64, device=x.device),
    lambda x: torch.randint(0, 1000, (64,), device=x.device),
    lambda x: torch.randperm(64, device=x.device),
    lambda x: F.dropout(x, 0.5),
    lambda x: F.alpha_dropout(x, 0.5, training=True),
    lambda x: F.rrelu(-x, training=True),
    lambda x: torch.bernoulli(x / 2),
    lambda x: torch.normal(x, x),
    lambda x: torch.poisson(x * 9),
    lambda x: torch.multinomial(x, 64, replacement=True),
    lambda x: torch.empty_like(x).uniform_(),
    lambda x: torch.empty_like(x).normal_(),
    lambda x: torch.empty_like(x).exponential_(),
    lambda x: torch.empty_like(x).bernoulli_(0.5),
)
"""What draws numbers for 64 ones."""


@needs.feature("generator")
@pytest.mark.thorough
@pytest.mark.parametrize("fallback_random", [False, True])
def test_draws_on_the_host_and_the_device(device: str, backend: ModuleType, fallback_random: bool) -> None:
    """Every draw of a graph has numbers of its own, of the generator that it would take eagerly, in a region too."""
    region = torch.compiler.nested_compile_region(lambda x: F.dropout(x, 0.5))
    run = torch.compile(lambda *xs: [[draw(x) for draw in (*_DRAWS, region)] for x in xs], fullgraph=True)
    ones = torch.ones(64), torch.ones(64, device=device)

    def numbers() -> list[list[list[float]]]:
        return [[drawn.tolist() for drawn in each] for each in run(*ones)]

    states = torch.get_rng_state(), backend.get_rng_state()
    with torch._inductor.config.patch(fallback_random=fallback_random):
        first = numbers()
        assert len({tuple(drawn) for each in first for drawn in each}) == 2 * len(first[0])
        for there, restore in enumerate((torch.set_rng_state, backend.set_rng_state)):
            restore(states[there])
            again = numbers()
            assert again[there] == first[there]
            assert not any(map(list.__eq__, again[1 - there], first[1 - there]))


@pytest.mark.thorough
@pytest.mark.parametrize("compiler", ["inductor", "aot_eager"])
@pytest.mark.parametrize("graphsafe", [True, False])
@pytest.mark.parametrize("on", [("cpu", 0), pytest.param((0, 1), marks=needs.devices(2))])
def test_checkpoints_draw_the_same_again(device: str, on: tuple[object, int], graphsafe: bool, compiler: str) -> None:
    """What a graph draws on two devices, the computation that is repeated for the gradients draws too."""

    def run(*xs: Tensor) -> list[list[Tensor]]:
        return [[x * draw(x.detach()) for draw in _DRAWS] for x in xs]

    devices = ["cpu" if each == "cpu" else f"{device}:{each}" for each in on]
    leaves = [torch.ones(64, device=each, requires_grad=True) for each in devices]
    with torch._functorch.config.patch(graphsafe_rng_functionalization=graphsafe):
        results = torch.compile(lambda *xs: checkpoint(run, *xs, use_reentrant=False), backend=compiler)(*leaves)
    totals = [torch.stack(products).sum(0) for products in results]
    torch.autograd.backward([total.sum() for total in totals])
    for x, total in zip(leaves, totals, strict=True):
        torch.testing.assert_close(x.grad, total.detach(), rtol=1e-4, atol=1e-3)


@pytest.mark.thorough
def test_control_flow(device: str) -> None:
    """Branches, loops and scans whose conditions are tensors stay in one graph."""
    higher = torch._higher_order_ops

    def run(x: Tensor) -> tuple[Tensor, ...]:
        chosen = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        _, repeated = higher.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64, device=device), x)
        )
        _, scanned = higher.scan(lambda a, b: (a + b, a * b), torch.zeros_like(x[0]), x)
        return chosen, repeated, scanned

    fast = torch.compile(run, fullgraph=True)
    x = torch.linspace(-1, 2, 12, device=device).reshape(4, 3)
    for value in (x, -x):
        chosen, repeated, scanned = fast(value)
        torch.testing.assert_close(chosen, value.sin() if value.sum() > 0 else value.cos())
        torch.testing.assert_close(repeated, value * 8)
        torch.testing.assert_close(scanned, (value.cumsum(0) - value) * value)


@pytest.mark.thorough
def test_regions(device: str) -> None:
    """A region that is compiled once and called twice, and an operator of the script's, are differentiated."""

    @torch.library.custom_op("torch_backend_kit::scaled", mutates_args=())
    def scaled(x: Tensor, by: float) -> Tensor:
        return x * by

    scaled.register_fake(lambda x, by: torch.empty_like(x))
    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.by, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )

    @torch.compiler.nested_compile_region
    def region(x: Tensor) -> Tensor:
        return x.sin() * 2

    def run(x: Tensor) -> Tensor:
        y: Tensor = scaled(region(region(x)), 3.0)
        return y + 1

    x = torch.linspace(-1, 1, 12, device=device)
    for actual, expected in zip(_gradients(torch.compile(run, fullgraph=True), x), _gradients(run, x), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.thorough
def test_flex_attention(device: str) -> None:
    """flex_attention with a mask and scores of tensors, eager, compiled, for any sizes, and without gradients."""
    query, key, value = torch.randn(3, 1, 2, 128, 16, generator=torch.Generator().manual_seed(0)).to(device)
    slopes = torch.linspace(0, 1, 2, device=device)
    documents = torch.arange(130, device=device) // 50  # of more places than there are

    def together(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (documents[i] == documents[j])

    mask = create_block_mask(together, 1, 1, 128, 128, device=device)

    def run(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        def nearer(score: Tensor, _: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score - slopes[head] * (i - j)

        result = flex_attention(query, key, value, score_mod=nearer, block_mask=mask)
        assert isinstance(result, Tensor)
        return result

    def right(query: Tensor, key: Tensor, value: Tensor, slopes: Tensor) -> Tensor:
        i, j = torch.arange(128, device=device)[:, None], torch.arange(128, device=device)
        bias = torch.where(together(i, i, i, j), -slopes[:, None, None] * (i - j), -torch.inf)
        return F.scaled_dot_product_attention(query, key, value, bias[None])

    inputs = query, key, value, slopes
    expected = _gradients(right, *inputs)
    fast = torch.compile(run, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), expected[0], rtol=1e-3, atol=1e-3)
    for form in (run, fast, torch.compile(run, fullgraph=True, dynamic=True)):
        for actual, other in zip(_gradients(form, *inputs), expected, strict=True):
            torch.testing.assert_close(actual, other, rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_frozen_weights(device: str) -> None:
    """Freezing makes weights constants of the compiled code."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device).eval()
    x = torch.linspace(-1, 1, 12, device=device).reshape(3, 4)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        torch.testing.assert_close(torch.compile(model)(x), copy.deepcopy(model)(x))


@needs.feature("streams")
@pytest.mark.thorough
def test_code_of_several_threads_and_streams(device: str, backend: ModuleType) -> None:
    """Threads run one compiled function, each on a stream of its own."""
    run = torch.compile(lambda x: x * 2 + 1)
    run(torch.zeros(1000, device=device))

    def work(number: int) -> None:
        with backend.stream(backend.Stream()):
            for value in range(number, number + 10):
                assert run(torch.full((1000,), float(value), device=device)).unique().tolist() == [2 * value + 1]

    in_numbered_threads(4, work)
