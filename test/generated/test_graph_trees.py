"""mode="reduce-overhead": compiled graphs that are captured in graphs of the device. They need one that captures."""

import gc
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, to_host
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config, cudagraph_trees
from torch_conformance.threads import in_numbered_threads

from torch_backend import _C

pytestmark = pytest.mark.skipif(
    "ASYNC" not in _C.device_properties().capabilities, reason="a synchronous device captures no graphs"
)

backend = getattr(torch, DEVICE)
captured = torch.compile(mode="reduce-overhead")


@pytest.fixture(autouse=True)
def trees_end() -> Iterator[None]:
    """After a test its trees go, and their memory with them."""
    with config.patch({"triton.slow_path_cudagraph_asserts": True, "triton.fast_path_cudagraph_asserts": True}):
        counters.clear()
        yield
        torch._dynamo.reset()
        gc.collect()
        backend.empty_cache()
        assert manager() is None
        assert [segment for segment in backend.memory_snapshot() if segment["segment_pool_id"] != (0, 0)] == []


def manager(device: int = 0) -> Any:
    return cudagraph_trees.get_container(device).tree_manager


def num_captured() -> int:
    return sum(1 + root.num_descendants() for root in manager().get_roots()) if manager() else 0


def num_live_blocks() -> int:
    blocks = [b for s in backend.memory_snapshot() if s["segment_pool_id"] != (0, 0) for b in s["blocks"]]
    return sum(block["state"] == "active_allocated" for block in blocks)


def same(got: Any, want: Any) -> None:
    torch.testing.assert_close(to_host(got), to_host(want))


def inputs(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, **options)


def test_a_graph_is_one_launch_and_reads_new_inputs() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(DEVICE)
    fast = torch.compile(net, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            x = inputs(8, 16)
            same(fast(x), net(x))
        assert num_captured() == 1
        x = inputs(8, 16)
        with torch.profiler.profile() as profile:
            fast(x)
    launches = [event.key for event in profile.key_averages() if event.key.startswith("aten::addmm")]
    assert launches == [], "a replay calls no operator of the graph"
    assert any(event.key == "graph_launch" for event in profile.key_averages())


def test_training_with_weights_that_change() -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(DEVICE) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    fast = torch.compile(nets[0], mode="reduce-overhead")
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.05) for net in nets]
    for _ in range(6):
        x = inputs(5, 8)
        for call, optimizer in zip((fast, nets[1]), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            call(x).square().mean().backward()
            optimizer.step()
    assert num_captured() == 2, "forward and backward"
    for ours, eager in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)


def test_results_of_a_branch_live_while_another_is_captured() -> None:
    def foo(x: torch.Tensor) -> torch.Tensor:
        y = x + x + x
        z = y + 1
        torch._dynamo.graph_break()
        return z + 1 if (y * y).sum() > 0 else z

    fast = torch.compile(foo, mode="reduce-overhead")
    zeros, ones = torch.zeros(5, device=DEVICE), torch.ones(5, device=DEVICE)
    for x in (zeros, zeros, ones, ones, zeros, ones):
        out = fast(x)
        same(out, foo(x))
    assert manager().debug_checkpointing_counter >= 2, "to warm up the other branch, and to capture it"
    assert num_live_blocks() == 1 or manager().path_state.name == "EXECUTION"
    del out
    kept = fast(ones).clone()
    same(kept, foo(ones))


def test_memory_of_results_is_counted_until_they_die() -> None:
    def foo(x: torch.Tensor) -> torch.Tensor:
        y = x + x
        return y + 10 if y.sum() > 0 else y - 10

    fast = torch.compile(foo, mode="reduce-overhead")
    x = torch.zeros(4, 4, device=DEVICE)
    for _ in range(2):
        same(fast(x), foo(x))
    x.add_(1)
    warm = fast(x)
    same(warm, foo(x))
    assert num_live_blocks() == 1
    live = fast(x)
    same(live, foo(x))
    del warm
    assert num_live_blocks() == 1
    del live
    assert num_live_blocks() == 0
    same(fast(x), foo(x))


def test_a_result_of_the_last_step_says_that_it_is_overwritten() -> None:
    @captured
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    x = inputs(4)
    first = cube(x)
    view = first[1:]
    second = cube(x)
    for gone in (first, view):
        with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
            gone + 1
    same(second, x * x * x)
    torch.compiler.cudagraph_mark_step_begin()
    kept = cube(x).clone()
    torch.compiler.cudagraph_mark_step_begin()
    cube(x * 2)
    same(kept, x * x * x)


def test_results_that_alias_parameters_inputs_and_one_another() -> None:
    weight = nn.Parameter(inputs(20, 20))

    @captured
    def foo(x: torch.Tensor) -> Any:
        y = x * 2
        return weight[0], weight, weight + x, y, y[0], x[1:], x.new_zeros(0)

    for _ in range(4):
        x = inputs(20, 20)
        out = foo(x)
        same(out, (weight[0], weight, weight + x, x * 2, x[0] * 2, x[1:], x.new_zeros(0)))
        assert out[1].data_ptr() == out[0].data_ptr() == weight.data_ptr()
        assert out[3].data_ptr() == out[4].data_ptr()
        del out
    assert num_captured() == 1


def test_what_is_written_in_place() -> None:
    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(10, device=DEVICE))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state.add_(x)
            return self.state * 2

    counting = Count()
    count = torch.compile(counting, mode="reduce-overhead")
    total = torch.zeros(10)
    for _ in range(4):
        x = inputs(10)
        total += x.cpu()
        same(count(x), total * 2)
    same(counting.state, total)
    assert num_captured() == 1, "a buffer can be written"

    @captured
    def add_two(x: torch.Tensor) -> torch.Tensor:
        return x.add_(2)

    for _ in range(3):
        x = torch.ones(10, device=DEVICE)
        add_two(x)
        same(x, torch.full((10,), 3.0))
    assert counters["inductor"]["cudagraph_skips"] == 1, "a tensor that comes anew each time cannot"


def test_weights_that_move_are_captured_anew() -> None:
    net = nn.Linear(6, 6).to(DEVICE)
    fast = torch.compile(net, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            for _ in range(3):
                x = inputs(2, 6)
                same(fast(x), net(x))
            net.weight.data = inputs(6, 6)


def test_expanded_transposed_and_unaligned_inputs() -> None:
    @captured
    def foo(x: torch.Tensor) -> torch.Tensor:
        return (x + 4).cumsum(0)

    for make in (lambda: inputs(1, 12).expand(4, 12), lambda: inputs(12, 4).t(), lambda: inputs(49)[1:].view(4, 12)):
        for _ in range(3):
            x = make()
            same(foo(x), (x + 4).cumsum(0))


def test_sizes_that_change() -> None:
    fast = torch.compile(lambda x: torch.cat([x, x]).softmax(-1), mode="reduce-overhead", dynamic=True)
    for size in (3, 5, 3, 5, 7, 3):
        x = inputs(size, 4)
        same(fast(x), torch.cat([x, x]).softmax(-1))
    for size in (3, 5, 7):
        x = inputs(size, 4)
        same(fast(x), torch.cat([x, x]).softmax(-1))


def test_random_numbers_are_new_with_each_replay() -> None:
    @captured
    def drop(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(64, device=DEVICE)
    torch.manual_seed(0)
    first = [drop(x).cpu() for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(first))
    torch.manual_seed(0)
    again = [drop(x).cpu() for _ in range(5)]
    assert all(map(torch.equal, first, again)), "warm-up, capture and replay draw what later replays draw"
    assert num_captured() == 1


def test_replays_on_several_streams_follow_one_another() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4096, device=DEVICE))

        def forward(self) -> None:
            self.total.add_(torch.rand_like(self.total))

    noise = Noise()
    add = torch.compile(noise, mode="reduce-overhead")
    for _ in range(3):
        add()
    sums = []
    for streams in ([torch.Stream(DEVICE)], [torch.Stream(DEVICE) for _ in range(3)]):
        noise.total.zero_()
        torch.manual_seed(0)
        backend.synchronize()
        for step in range(12):
            with streams[step % len(streams)]:
                add()
        backend.synchronize()
        sums.append(noise.total.cpu())
    assert torch.equal(*sums)
    assert num_captured() == 1


def fills(x: torch.Tensor, generator: torch.Generator | None) -> dict[str, torch.Tensor]:
    """What does nothing but fill a tensor, by name."""
    like: Any = {"device": x.device, "generator": generator}
    torch.randint(-5, 5, x.shape, generator=generator, out=x)
    return {
        "a view, in place": x,
        "rand": torch.rand(33, **like),
        "randn of halves": torch.randn(3, 5, dtype=torch.bfloat16, **like),
        "integers": torch.randint(2**40, (7,), **like),
        "bernoulli": torch.empty(40, device=x.device).bernoulli_(0.3, generator=generator),
        "multinomial": torch.multinomial(torch.ones(4, 9, device=x.device), 3, generator=generator),
        "nothing": torch.rand(0, **like),
    }


@pytest.mark.parametrize("own", [False, True], ids=["the device's generator", "one of its own"])
def test_what_is_filled_in_a_graph_is_drawn_before_each_replay(own: bool) -> None:
    """The numbers of the same calls without a graph, whatever stream they are replayed on."""
    generator = torch.Generator(DEVICE) if own else None
    x = torch.zeros(6, 10, device=DEVICE)[:, ::2].t()
    get_state = generator.get_state if own else backend.get_rng_state
    state = get_state()
    graph = backend.Graph()
    with backend.graph(graph):
        results = fills(x, generator)
    assert torch.equal(get_state(), state), "the capture has drawn"
    seed = generator.manual_seed if own else torch.manual_seed
    streams = [torch.Stream(DEVICE) for _ in range(3)]
    seed(3)
    replayed = []
    before = backend.current_stream()
    for stream in [*streams, *streams, streams[0], streams[0]]:
        with stream:
            stream.wait_stream(before)
            graph.replay()
            replayed.append({name: result.clone() for name, result in results.items()})
        before = stream
    backend.synchronize()
    seed(3)
    for drawn in replayed:
        same(drawn, fills(torch.empty_like(x), generator))
    for one, other in itertools.combinations(replayed, 2):
        assert all(not torch.equal(one[name], other[name]) for name in results if name != "nothing")


def test_what_a_failed_capture_would_have_drawn_is_forgotten() -> None:
    seeds, x, graph = torch.empty(4, dtype=torch.int64, device=DEVICE), torch.zeros(4, device=DEVICE), backend.Graph()

    def draw() -> None:
        seeds.random_()
        seeds[0].item()

    with pytest.raises(RuntimeError, match="aten::item"), backend.graph(graph):
        draw()
    with backend.graph(graph):
        x.add_(1)
    before = backend.get_rng_state()
    graph.replay()
    assert torch.equal(backend.get_rng_state(), before)
    assert x.tolist() == [1] * 4


def test_gradients_that_accumulate() -> None:
    fast = torch.compile(lambda x, w: (x @ w).tanh(), mode="reduce-overhead")
    x, w = inputs(4, 4), inputs(4, 4, requires_grad=True)
    w.grad = torch.zeros_like(w)  # as PyTorch asks for: one that a graph has made is overwritten
    want = torch.zeros(4, 4)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        fast(x, w).sum().backward()
        want += torch.autograd.grad((x @ w).tanh().sum(), w)[0].cpu()
    torch.testing.assert_close(w.grad.cpu(), want)


def test_what_a_graph_cannot_hold_runs_as_before(caplog: pytest.LogCaptureFixture) -> None:
    @torch.library.custom_op("test_graph_trees::waits", mutates_args=())
    def waits(x: torch.Tensor) -> torch.Tensor:
        return x * (1.0 if x.sum().item() >= 0 else -1.0)

    waits.register_fake(torch.empty_like)

    def foo(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.ops.test_graph_trees.waits(x + w) * 2, x[1:]

    w = inputs(8)
    fast = torch.compile(foo, mode="reduce-overhead")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            x = inputs(8)
            same(fast(x, w), foo(x, w))
    said = [record.getMessage() for record in caplog.records if "skipping cudagraphs" in record.getMessage()]
    assert len(said) == 1, said
    assert "cannot be captured in a graph" in said[0], said
    assert "item" in said[0], said
    assert counters["inductor"]["cudagraph_skips"] == 1

    cube = torch.compile(lambda x: x * x * x, mode="reduce-overhead")
    for _ in range(3):
        x = inputs(8)
        same(cube(x), x * x * x)
    assert num_captured() == 1, "the device captures after that"
    torch._dynamo.reset()
    fast = torch.compile(foo, mode="reduce-overhead")
    fast(inputs(8), w)
    with config.patch("triton.cudagraph_or_error", True), pytest.raises(RuntimeError, match="skipping cudagraphs"):
        fast(inputs(8), w)


def test_values_and_sizes_that_depend_on_data() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        item = torch.compile(lambda x: x.item(), mode="reduce-overhead")
        nonzero = torch.compile(lambda x: x.nonzero() + 1, mode="reduce-overhead")
        for values in ([1, 0, 2], [1, 0, 0], [0, 0, 0], [1, 1, 1]):
            x = torch.tensor(values, device=DEVICE)
            assert item(x[0]) == values[0]
            same(nonzero(x), torch.tensor(values).nonzero() + 1)


def test_two_graphs_of_one_step_and_autocast() -> None:
    first, second = nn.Linear(8, 8).to(DEVICE), nn.Linear(8, 8).to(DEVICE)
    a, b = (torch.compile(net, mode="reduce-overhead") for net in (first, second))
    for _ in range(4):
        x = inputs(4, 8)
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(DEVICE, torch.bfloat16):
            got, want = b(a(x)), second(first(x))
        torch.testing.assert_close(got.cpu(), want.cpu(), rtol=2e-2, atol=2e-2)
        got.float().sum().backward()
        for net in (first, second):
            assert net.weight.grad is not None
            net.zero_grad(set_to_none=True)


def test_on_another_stream_and_device() -> None:
    for device in range(backend.device_count()):
        fast = torch.compile(lambda x: (x @ x).relu(), mode="reduce-overhead")
        stream = torch.Stream(f"{DEVICE}:{device}")
        with torch.accelerator.device_index(device), stream:
            for _ in range(4):
                x = torch.randn(16, 16, device=f"{DEVICE}:{device}")
                same(fast(x), (x @ x).relu())
        assert manager(device) is not None
    torch._dynamo.reset()


def test_threads() -> None:
    def work(number: int) -> None:
        fast = torch.compile(lambda x: (x * number).cumsum(0).softmax(-1), mode="reduce-overhead", dynamic=False)
        for _ in range(8):
            x = inputs(number + 2, 8)
            same(fast(x), (x * number).cumsum(0).softmax(-1))

    in_numbered_threads(4, work)


def test_freed_memory_comes_back_when_compiled_functions_go() -> None:
    backend.empty_cache()
    before = backend.memory_reserved()
    for _ in range(3):
        fast = torch.compile(lambda x: (x + 1).exp().sum(0), mode="reduce-overhead")
        for _ in range(3):
            fast(inputs(1024, 256))
        assert backend.memory_reserved() > before
        del fast
        torch._dynamo.reset()
        gc.collect()
        backend.empty_cache()
        assert backend.memory_reserved() == before
