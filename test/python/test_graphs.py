"""Graphs of the device.

They need a device that captures. On any other, the last test of this file runs the others in a process of their own on
asynchronous xcpu, where every operation is delayed.
"""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fixtures import BuildPlugin, RunPython, run_program
from torch import nn
from torch_conformance.threads import in_numbered_threads

from torch_backend.files import installed

ASYNC = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-200"}

here = pytest.mark.skipif("TORCH_BACKEND_XCPU_ASYNC" in os.environ, reason="has a process of its own anyway")


@pytest.fixture
def backend(backend: ModuleType) -> ModuleType:
    """Skips on a device that cannot capture."""
    if "ASYNC" not in backend.get_device_properties(0).capabilities:
        pytest.skip("a synchronous device captures no graphs")
    return backend


def test_inputs_that_are_gone_are_noticed(name: str, backend: ModuleType) -> None:
    x, weight = torch.ones(4, device=name), torch.full((4,), 2.0, device=name)
    g = backend.Graph()
    with backend.graph(g, check_input_liveness=True):
        z = torch.relu(x.view(2, 2) * weight.view(2, 2)).sum(0)
    for value in (1, 3):
        x.fill_(value)
        g.replay()
        assert z.tolist() == [4.0 * value] * 2
    address = weight.data_ptr()
    del weight
    with pytest.raises(RuntimeError, match=r"1 tensor.* freed .*float32\[.*aten\.view\.default"):
        g.replay()
    other = torch.full((4,), 5.0, device=name)
    assert other.data_ptr() == address, "the test has to reuse the memory"
    with pytest.raises(RuntimeError, match="1 tensor"):
        g.replay()
    g.reset()
    with backend.graph(g):
        torch.ones(4, device=name).add_(1)
    g.replay()


def test_a_capture_that_fails_stops_watching_its_inputs(name: str, backend: ModuleType) -> None:
    x = torch.ones(4, device=name)
    g = backend.Graph()
    with pytest.raises(RuntimeError), backend.graph(g, check_input_liveness=True):
        x.sum().item()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert (x + 1).tolist() == [2.0] * 4


def test_random_numbers_are_new(name: str, backend: ModuleType) -> None:
    """Each replay draws what the same calls draw without a graph, and the generator moves on."""
    x = torch.empty(1000, device=name)
    ones = torch.ones(1000, device=name)
    g = backend.Graph()
    offset = backend._get_rng_state_offset() if hasattr(backend, "_get_rng_state_offset") else None
    with backend.graph(g):
        x.normal_()
        dropped = nn.functional.dropout(ones, 0.5)
    assert offset is None or backend._get_rng_state_offset() == offset, "the capture has drawn numbers"
    backend.manual_seed(7)
    drawn = []
    for _ in range(2):
        g.replay()
        drawn.append((x.clone(), dropped.clone()))
    assert not torch.equal(drawn[0][0], drawn[1][0])
    backend.manual_seed(7)
    for numbers, kept in drawn:
        x.normal_()
        assert torch.equal(x, numbers)
        assert torch.equal(nn.functional.dropout(ones, 0.5), kept)


def test_a_training_step(name: str, backend: ModuleType) -> None:
    """Forward, backward and optimizer step in one graph train as without one; convolutions and norms are in it."""

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.LayerNorm(8)]
        model = nn.Sequential(*layers).to(name)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    data = torch.randn(5, 2, 1, 8, 8, generator=torch.Generator().manual_seed(1)).to(name)
    losses = []
    for graphed in (False, True):
        model, optimizer = make()

        def step(
            x: torch.Tensor, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer
        ) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        static = data[0].clone()
        side = backend.Stream()
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            step(static)
        backend.synchronize()
        if graphed:
            g = backend.Graph()
            with backend.graph(g):
                out = step(static)
        values = []
        for batch in data[1:]:
            static.copy_(batch)
            if graphed:
                g.replay()
            else:
                out = step(static)
            values.append(out.item())
        losses.append(values)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


REFUSED = {
    "aten::item": lambda x, _: x.sum().item(),
    "aten::nonzero": lambda x, _: x.nonzero(),
    "synchronize": lambda x, backend: backend.synchronize(),
    "Stream.synchronize": lambda x, backend: backend.current_stream().synchronize(),
    "copy to pageable host memory": lambda x, _: x.cpu(),
    "copy from pageable host memory": lambda x, _: x.copy_(torch.ones(8)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_captured_is_named(what: str, name: str, backend: ModuleType) -> None:
    """The error says what it was, comes from the call, and after it the device and the graph work on."""
    x = torch.ones(8, device=name)
    g = backend.Graph()

    def capture(body: Any) -> torch.Tensor:
        with backend.graph(g):
            y = x + 1
            body(y, backend)
            return y

    with pytest.raises(RuntimeError, match=f"{what}.* cannot be captured"):
        capture(REFUSED[what])
    assert not backend.is_current_stream_capturing()
    assert (x + 1).tolist() == [2] * 8
    with pytest.raises(RuntimeError, match="nothing to replay"):
        g.replay()
    y = capture(lambda *_: None)
    g.replay()
    assert y.tolist() == [2] * 8


def test_a_failure_that_was_swallowed_fails_the_capture(name: str, backend: ModuleType) -> None:
    x = torch.ones(8, device=name)
    g = backend.Graph()
    stream = backend.Stream()
    with backend.stream(stream):
        g.capture_begin()
        with pytest.raises(RuntimeError):
            x.sum().item()
        with pytest.raises(RuntimeError, match="The capture has failed: aten::item"):
            g.capture_end()
    assert x.sum().item() == 8


def test_calls_in_a_wrong_order(backend: ModuleType) -> None:
    g = backend.Graph()
    with pytest.raises(RuntimeError, match="not the default one"):
        g.capture_begin()
    for call, message in ((g.capture_end, "without capture_begin"), (g.replay, "nothing to replay"), (g.pool, "pool")):
        with pytest.raises(RuntimeError, match=message):
            call()
    with backend.graph(g):
        pass
    with pytest.raises(RuntimeError, match="call reset"), backend.graph(g):
        pass
    with pytest.raises(ValueError, match="capture_error_mode"), backend.graph(backend.Graph(), capture_error_mode="x"):
        pass


def test_streams_that_join(name: str, backend: ModuleType) -> None:
    """Work of a stream that waits for the capturing one, and is waited for, is in the graph."""
    x = torch.ones(100, device=name)
    g, side = backend.Graph(), backend.Stream()
    with backend.graph(g):
        y = x * 2
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            z = y + 1
        backend.current_stream().wait_stream(side)
        w = z * 10
    x.fill_(3)
    g.replay()
    assert w[0].item() == 70


def test_pools_are_shared(name: str, backend: ModuleType) -> None:
    x = torch.ones(10, device=name)
    first, second = backend.Graph(), backend.Graph(keep_graph=True)
    with backend.graph(first, pool=backend.graph_pool_handle()):
        y = x + 1
    with backend.graph(second, pool=first.pool()):
        z = y * 2
    assert first.pool() == second.pool()
    second.instantiate()
    first.replay()
    second.replay()
    assert z.tolist() == [4] * 10


def test_the_steps_can_be_dumped(name: str, backend: ModuleType, tmp_path: Path) -> None:
    x = torch.ones(10, device=name)
    g = backend.Graph()
    g.enable_debug_mode()
    with backend.graph(g):
        x.mm(x.T) if x.dim() > 1 else x.add_(1)
    g.debug_dump(str(tmp_path / "graph.dot"))
    assert "aten::add_.Tensor" in (tmp_path / "graph.dot").read_text()


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is of torch 2.12")
def test_the_generic_front_end(name: str, backend: ModuleType) -> None:
    x = torch.ones(10, device=name)
    g = torch.accelerator.Graph()
    with torch.Stream(device=name), g:
        y = x + 1
    x.fill_(5)
    g.replay()
    assert y.tolist() == [6] * 10


def test_a_profiler_shows_replays(name: str, backend: ModuleType) -> None:
    """A profiler may run during the capture, and shows the work of each replay."""
    x = torch.ones(10, device=name)
    g = backend.Graph()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as prof:
        with backend.graph(g):
            x.mul_(2)
        for _ in range(3):
            g.replay()
        backend.synchronize()
    (kernel,) = (event for event in prof.key_averages() if event.key == "aten::mul_.Tensor [CPU kernel]")
    assert kernel.count == 3
    assert x.tolist() == [8] * 10


def test_graphed_callables(name: str, backend: ModuleType) -> None:
    """A graphed module gives the results and the gradients of the module."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(name)
    x = torch.randn(4, 6, device=name, requires_grad=True)
    expected = model(x)
    expected.sum().backward()
    expected = expected.detach()  # or the gradients of the graph would be added up on the default stream
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert x.grad is not None
    of_x = x.grad.clone()
    model.zero_grad()
    graphed = backend.make_graphed_callables(model, (torch.randn(4, 6, device=name, requires_grad=True),))
    x.grad = None
    result = graphed(x)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], gradients)
    torch.testing.assert_close(x.grad, of_x)


class _Pair(nn.Module):
    """Takes and gives more than a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, first: torch.Tensor, rest: dict[str, torch.Tensor]) -> dict[str, Any]:
        loss = self.linear(first) * rest["scale"]
        return {"loss": loss, "parts": (loss.detach().argmax(1), None), "name": "pair"}


def test_graphed_callables_take_and_give_structures(name: str, backend: ModuleType) -> None:
    torch.manual_seed(0)
    model = _Pair().to(name)

    def arguments(scale: float) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return torch.arange(12.0, device=name).view(4, 3), {
            "scale": torch.full((2,), scale, device=name).requires_grad_()
        }

    first, rest = arguments(-2.0)
    expected = model(first, rest)
    expected["loss"].sum().backward()
    assert rest["scale"].grad is not None
    gradients = [rest["scale"].grad.clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    expected["loss"] = expected["loss"].detach()
    model.zero_grad()

    graphed = backend.make_graphed_callables(model, arguments(1.0), capture_error_mode="thread_local")
    first, rest = arguments(-2.0)
    result = graphed(first, rest)
    assert list(result) == ["loss", "parts", "name"]
    assert (result["name"], result["parts"][1]) == ("pair", None)
    assert (result["loss"].requires_grad, result["parts"][0].requires_grad) == (True, False)
    torch.testing.assert_close(result["loss"].detach(), expected["loss"])
    torch.testing.assert_close(result["parts"][0], expected["parts"][0])
    result["loss"].sum().backward()
    torch.testing.assert_close([rest["scale"].grad, *(p.grad for p in model.parameters())], gradients)

    with pytest.raises(
        ValueError, match=r"shapes \(\[4, 3\], \{'scale': \[2\]\}\), not \(\[1, 3\], \{'scale': \[2\]\}\)"
    ):
        graphed(first[:1], rest)
    with pytest.raises(ValueError, match=r"not \(\[4, 3\], \[2\]\)"):
        graphed(first, rest["scale"])


def test_what_cannot_be_a_graphed_callable_is_refused(name: str, backend: ModuleType) -> None:
    x = torch.ones(2, 3, device=name)
    model = nn.Linear(3, 2).to(name)
    with pytest.raises(TypeError, match="must be tensors"):
        backend.make_graphed_callables(model, (x, {"scale": 2}))
    with pytest.raises(NotImplementedError, match="leave out enable_annotations"):
        backend.make_graphed_callables(model, (x,), enable_annotations=True)
    with torch.autocast(name, dtype=torch.bfloat16), pytest.raises(RuntimeError, match="cache_enabled=False"):
        backend.make_graphed_callables(model, (x,))
    with torch.autocast(name, dtype=torch.bfloat16, cache_enabled=False):
        graphed = backend.make_graphed_callables(model, (x,))
        assert graphed(x).dtype is torch.bfloat16
    hooked = nn.Linear(3, 2).to(name)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="Linear has hooks"):
        backend.make_graphed_callables(hooked, (x,))
    norm = nn.BatchNorm1d(3).to(name)
    assert norm.running_mean is not None
    norm.running_mean.requires_grad_()
    with pytest.raises(ValueError, match="BatchNorm1d has a buffer that requires a gradient"):
        backend.make_graphed_callables(norm, (x,))


def test_graphed_callables_are_freed_with_the_last_reference(name: str, backend: ModuleType) -> None:
    """Not by the garbage collector, which may run while something else is captured."""
    gc.collect()
    gc.disable()
    try:
        graphed = backend.make_graphed_callables(lambda x: x.exp(), (torch.ones(4, device=name, requires_grad=True),))
        graphed(torch.ones(4, device=name, requires_grad=True)).sum().backward()
        graphs = weakref.ref(graphed.__self__)
        del graphed
        assert graphs() is None
    finally:
        gc.enable()


def test_graphs_take_memory_of_a_pool(name: str, backend: ModuleType) -> None:
    pool = backend.MemPool()
    x = torch.ones(1000, device=name)
    g = backend.Graph()
    with backend.graph(g, pool=pool):
        y = x * 3
    assert g.pool() == pool.id
    assert any(block["address"] == y.data_ptr() for segment in pool.snapshot() for block in segment["blocks"])
    g.replay()
    assert y.tolist() == [3] * 1000
    graphed = backend.make_graphed_callables(lambda x: x + 1, (x,), pool=pool)
    assert graphed(y).tolist() == [4] * 1000
    del g, graphed, pool
    backend.empty_cache()
    assert y.tolist() == [3] * 1000


def test_a_thousand_replays_from_two_threads(name: str, backend: ModuleType) -> None:
    """Each thread captures and replays on streams of its own, and all memory comes back."""
    backend.synchronize()
    backend.empty_cache()
    before = backend.memory_reserved()

    def work(number: int) -> None:
        stream = backend.Stream()
        with backend.stream(stream):
            x, total = torch.full((64,), number + 1.0, device=name), torch.zeros(64, device=name)
            g = backend.Graph()
            g.capture_begin(capture_error_mode="thread_local")
            total.add_(x * 2)
            g.capture_end()
            for _ in range(1000):
                g.replay()
            stream.synchronize()
            assert total.tolist() == [2000.0 * (number + 1)] * 64

    in_numbered_threads(2, work)
    backend.empty_cache()
    assert backend.memory_reserved() <= before


def test_a_capture_begins_while_another_thread_captures(name: str, backend: ModuleType) -> None:
    both_capture = threading.Barrier(2)

    def work(number: int) -> None:
        x, g = torch.full((64,), number + 1.0, device=name), backend.Graph()
        if number == 1:
            both_capture.wait(60)
        with backend.graph(g, stream=backend.Stream(), capture_error_mode="thread_local"):
            y = x * 2
            if number == 0:
                both_capture.wait(60)  # lets the other one begin,
                both_capture.wait(60)  # and waits until it has
            else:
                both_capture.wait(60)
        g.replay()
        assert y.tolist() == [2.0 * (number + 1)] * 64

    in_numbered_threads(2, work)


def test_what_fails_in_a_replay(name: str, backend: ModuleType) -> None:
    """It is raised by the next wait, and the graph works on."""
    index, x = torch.zeros(2, dtype=torch.long, device=name), torch.arange(4.0, device=name)
    g = backend.Graph()
    with backend.graph(g):
        y = x.index_select(0, index)
    index.fill_(9)
    g.replay()
    with pytest.raises((RuntimeError, IndexError), match=r"out of (range|bounds)"):
        backend.synchronize()
    index.fill_(3)
    g.replay()
    assert y.tolist() == [3, 3]


def test_events_of_a_capture(name: str, backend: ModuleType) -> None:
    """They cannot be waited for by the host, nor after the capture; those from before cannot be waited for in it."""
    x, event, before = torch.ones(4, device=name), backend.Event(enable_timing=True), backend.Event()
    before.record()
    g, stream = backend.Graph(), backend.Stream()
    refused = {
        "Event.synchronize": event.synchronize,
        "Event.query": event.query,
        "recorded outside of the capture": lambda: before.wait(stream),
    }

    def capture(use: Callable[[], object]) -> None:
        with backend.graph(g, stream=stream):
            x.add_(1)
            event.record(stream)
            use()

    for what, use in refused.items():
        with pytest.raises(RuntimeError, match=what):
            capture(use)
    with backend.graph(g, stream=stream):
        event.record(stream)
    with pytest.raises(RuntimeError, match="capture that is over"):
        event.wait(backend.Stream())
    event.record()
    event.synchronize()
    assert x.tolist() == [1] * 4


def test_a_stream_that_is_left_behind_fails_the_capture(name: str, backend: ModuleType) -> None:
    x, g, side = torch.ones(4, device=name), backend.Graph(), backend.Stream()
    backend.synchronize()
    with backend.stream(backend.Stream()):
        g.capture_begin()
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            x.add_(1)
        with pytest.raises(RuntimeError, match="joined the capture"):
            g.capture_end()
    backend.synchronize()
    with backend.stream(side):
        x.add_(1)
    side.synchronize()
    assert x.tolist() == [2] * 4


@here
@pytest.mark.parametrize(
    "slot",
    ["capture_begin", "capture_end", "graph_instantiate", "graph_launch", "event_record", "memory_fill"],
)
def test_a_call_that_fails(slot: str, run_python: RunPython) -> None:
    """It is raised where it happens, the device works on, no memory is lost, and no random numbers are left over."""
    run_python(
        f"""
import torch, torch_backend
from torch_backend import _C
x, y = torch.zeros(1 << 20, device="xcpu"), torch.empty(4, device="xcpu")
stream, side = torch.xcpu.Stream(), torch.xcpu.Stream()
torch.xcpu.synchronize()

def run(g):
    with torch.xcpu.graph(g, stream=stream):
        x.fill_(1)
        side.wait_stream(stream)
        with torch.xcpu.stream(side):
            z = x + 1
        stream.wait_stream(side)
        y.normal_()
    g.replay()
    torch.xcpu.synchronize()
    assert z[-1].item() == 2

torch.xcpu.empty_cache()
before = torch.xcpu.memory_reserved()
g = torch.xcpu.Graph()
_C.set_option("xcpu.fault", "{slot}=INTERNAL")
try:
    run(g)
except RuntimeError as error:
    assert "{slot}" in str(error), error
else:
    raise AssertionError("nothing failed")
_C.set_option("xcpu.fault", "")
assert (x + 1)[-1].item() in (1, 2)
torch.manual_seed(1)
if "{slot}" == "graph_launch":
    g.replay()
else:
    g.reset()
    run(g)
drawn = y.tolist()
torch.manual_seed(1)
assert y.normal_().tolist() == drawn
g.reset()
torch.xcpu.empty_cache()
assert torch.xcpu.memory_reserved() == before, torch.xcpu.memory_reserved()
""",
        env=ASYNC | {"TORCH_BACKEND_XCPU_FAULT": ""},
    )


@here
def test_kernels_of_the_device_library(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """What they enqueue is captured."""
    run_python(
        """
import torch
x = torch.zeros(8, device="xcpu")
g = torch.xcpu.Graph()
g.enable_debug_mode()
with torch.xcpu.graph(g):
    y = torch.exp(x)  # writes 7
    z = y + 1
g.debug_dump("/dev/stdout")
y.zero_()
g.replay()
assert (y.tolist(), z.tolist()) == ([7] * 8, [8] * 8)
""",
        env=ASYNC | {"TORCH_BACKEND_PATH": build_plugin(source="full.c", over="xcpu")},
    )


@here
def test_a_device_library_that_runs_what_it_records(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """A host function that is called without a launch says so."""
    run_python(
        """
import pytest, torch
x = torch.ones(4, device="xcpu")
torch.xcpu.synchronize()
g = torch.xcpu.Graph()
with torch.xcpu.graph(g):
    x.mul_(2)
with pytest.raises(RuntimeError, match="xcpu has run aten::mul_.Tensor.* without a launch"):
    torch.xcpu.synchronize()
g.replay()
assert x.tolist() == [2] * 4
""",
        env=ASYNC
        | {
            "TORCH_BACKEND_PATH": build_plugin(source="faulty.c", name="xcpu"),
            "TORCH_BACKEND_FAULTY_OVER": installed.reference_library("xcpu"),
            "TORCH_BACKEND_FAULTY": "functions_run_when_recorded",
        },
    )


@here
@pytest.mark.parametrize("device", ["xcpu", "fake"])
def test_a_synchronous_device(device: str, run_python: RunPython) -> None:
    run_python(
        f"""
import pytest, torch
x = torch.zeros(4, device="{device}")
with pytest.raises(NotImplementedError, match="{device}:0 cannot capture a graph.*synchronous.*'async': 1"):
    with torch.{device}.graph(torch.{device}.Graph()):
        x.fill_(1)
assert (x + 1).tolist() == [1] * 4
""",
        env={"TORCH_BACKEND": device},
    )


@here
def test_a_device_without_the_table(build_plugin: BuildPlugin) -> None:
    """The core captures."""
    path = build_plugin("WITHOUT=TB_CAP_GRAPH", source="less.c", over="xcpu")
    process = run_program(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, **ASYNC, TORCH_BACKEND_PATH=path
    )
    assert " passed" in process.stdout


@here
def test_a_launch_without_the_table_that_fails(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """Half of it may be on the stream: the graph is of no more use, the device is. Nothing of it may be tried again."""
    run_python(
        """
import contextlib, pytest, torch
from torch_backend import _C

x, side = torch.zeros(1 << 16, device="xcpu"), torch.xcpu.Stream()

def replay_with(fault):
    _C.set_option("xcpu.fault", f"{fault}=INTERNAL")
    try:
        graph.replay()
    finally:
        _C.set_option("xcpu.fault", "")

for fault, is_half in (("stream_host_function", False), ("event_record", True)):
    graph = torch.xcpu.Graph()
    with torch.xcpu.graph(graph):
        x.sin_()
        side.wait_stream(torch.xcpu.current_stream())
        with torch.xcpu.stream(side):
            x.cos_()
        torch.xcpu.current_stream().wait_stream(side)
    graph.replay()
    with pytest.raises(torch.AcceleratorError, match=f"{fault} fails"):
        replay_with(fault)
    if is_half:
        with pytest.raises(RuntimeError, match="failed before all of it was enqueued: capture it again"):
            graph.replay()
        with contextlib.suppress(RuntimeError):  # of what was enqueued without a launch
            torch.xcpu.synchronize()
    else:
        graph.replay()
    graph.reset()
    with torch.xcpu.graph(graph):
        x.add_(2)
    x.zero_()
    graph.replay()
    assert x.eq(2).all().item()
""",
        env=ASYNC
        | {
            "TORCH_BACKEND_PATH": build_plugin("WITHOUT=TB_CAP_GRAPH", source="less.c", over="xcpu"),
            "TORCH_BACKEND_XCPU_FAULT": "",
        },
    )


@here
def test_a_kernel_of_the_library_without_the_table(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """It enqueues what the core does not see, so that another kernel is captured."""
    run_python(
        """
import torch
x = torch.ones(4, device="xcpu")
assert x.exp().tolist() == [7] * 4
g = torch.xcpu.Graph()
with torch.xcpu.graph(g):
    y = x.exp()
for value in (0, 1):
    x.fill_(value)
    g.replay()
    torch.testing.assert_close(y.cpu(), torch.full((4,), float(value)).exp())
assert x.exp().tolist() == [7] * 4
""",
        env=ASYNC | {"TORCH_BACKEND_PATH": build_plugin("WITHOUT_GRAPHS", source="full.c", over="xcpu")},
    )


@here
def test_a_kernel_without_memory_says_so_in_a_capture(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """Elsewhere the cache is emptied first, and that would end the capture."""
    run_python(
        """
import pytest, torch
x = torch.ones(4, device="xcpu")
with pytest.raises(torch.OutOfMemoryError, match="the kernel finds no room"):
    x.relu()
with pytest.raises(torch.OutOfMemoryError, match="the kernel finds no room"):
    with torch.xcpu.graph(torch.xcpu.Graph()):
        x.relu()
assert (x + 1).tolist() == [2] * 4
""",
        env={
            "TORCH_BACKEND": "xcpu",
            "TORCH_BACKEND_PATH": build_plugin(source="full.c", over="xcpu"),
            "TORCH_BACKEND_XCPU_ASYNC": "1",
        },
    )


@here
def test_asynchronous_xcpu() -> None:
    process = run_program("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, **ASYNC)
    assert " passed" in process.stdout
