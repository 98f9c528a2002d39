"""Asynchronous devices: errors that come late, and the kit's level "async" on xcpu with delays and with less.

Errors need a device whose work takes a while and fails when told to. On any other, the last tests of this file run the
others in a process of their own on such an xcpu.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fixtures import BuildPlugin, RunPython, clean_environment
from torch import Tensor
from torch_conformance import levels

from torch_backend import _C

ENVIRONMENT = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": "3000",
    "TORCH_BACKEND_XCPU_FAULT": "",  # so that it can be changed later
}


@pytest.fixture
def delayed(backend: ModuleType) -> Iterator[ModuleType]:
    """The device's module, where every asynchronous operation is delayed and can be told to fail."""
    if any(os.environ.get(key) != value for key, value in ENVIRONMENT.items()):
        pytest.skip("needs xcpu with the settings of ENVIRONMENT")
    backend.synchronize()
    yield backend
    backend.synchronize()


def pinned(values: Tensor) -> Tensor:
    return values.pin_memory()


@pytest.fixture
def next_copy_fails(delayed: ModuleType) -> Iterator[Callable[[], None]]:
    """Call it to let the next copy fail when it runs."""
    yield lambda: _C.set_option("xcpu.fault", "memory_copy=INTERNAL@1")
    _C.set_option("xcpu.fault", "")


def test_errors_of_asynchronous_work_are_raised_later(
    delayed: ModuleType, name: str, next_copy_fails: Callable[[], None]
) -> None:
    x, source = torch.zeros(10, device=name), pinned(torch.ones(10))
    delayed.synchronize()
    next_copy_fails()
    x.copy_(source, non_blocking=True)
    with pytest.raises(RuntimeError, match="memory_copy fails with INTERNAL"):
        delayed.synchronize()
    delayed.synchronize()
    assert x.copy_(source).sum().item() == 10


def test_errors_of_kernels(delayed: ModuleType, name: str) -> None:
    x = torch.arange(3.0, device=name)
    index = pinned(torch.tensor([0, 7])).to(name, non_blocking=True)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        torch.gather(x, 0, index).cpu()
    delayed.synchronize()
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        x[index].cpu()
    delayed.synchronize()
    assert (x + 1).tolist() == [1, 2, 3]


def test_operators_with_numbers_do_not_wait_for_the_device(delayed: ModuleType, name: str) -> None:
    """Also in how they choose the result's dtype, a number is no tensor."""
    expressions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x * 2,
        lambda x: x * 2.5,
        lambda x: x + 1j,
        lambda x: 1 - x,
        lambda x: x / 3,
        lambda x: torch._foreach_mul([x], 2.5)[0],
    ]
    inputs = [torch.arange(4, dtype=dtype) for dtype in (torch.int64, torch.float32, torch.float64)]
    on_device = [x.to(name) for x in inputs]
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as profile:
        results = [expression(x) for expression in expressions for x in on_device]
    waits = [event.name for event in profile.events() if event.name == "stream_synchronize"]
    assert waits == []
    for result, expected in zip(results, (expression(x) for expression in expressions for x in inputs), strict=True):
        torch.testing.assert_close(result.cpu(), expected)


def in_place(change: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def changed(x: Tensor) -> Tensor:
        copy = x.clone()
        change(copy)
        return copy

    return changed


def test_operators_of_a_training_step_do_not_wait_for_the_device(delayed: ModuleType, name: str) -> None:
    expressions: list[Callable[[Tensor], Tensor]] = [
        in_place(lambda x: torch._foreach_mul_([x], 0.9)),
        in_place(lambda x: torch._foreach_lerp_([x], [x + 1], 0.1)),
        in_place(lambda x: torch.add(x, x, alpha=2, out=x)),
        lambda x: torch.nn.functional.layer_norm(x, (6,)),
        lambda x: torch.nn.functional.group_norm(x, 2),
        lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        lambda x: torch.max(x, 1).values,
        lambda x: torch.softmax(x.t(), 0),
        lambda x: x @ x.t(),
    ]
    x = torch.randn(4, 6)
    on_device = x.to(name)
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as profile:
        results = [expression(on_device) for expression in expressions]
    assert [event.name for event in profile.events() if event.name == "stream_synchronize"] == []
    for result, expression in zip(results, expressions, strict=True):
        torch.testing.assert_close(result.cpu(), expression(x))


def test_a_result_over_another_part_of_an_input_is_refused_at_once(delayed: ModuleType, name: str) -> None:
    x = torch.arange(6.0, device=name)
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        torch.add(x[:4], 1, out=x[1:5])
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        x.index_copy_(0, torch.arange(6).to(name), x)
    delayed.synchronize()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_memory_that_others_pinned_is_kept_and_not_waited_for(run_python: RunPython) -> None:
    run_python(
        """
        import ctypes, weakref, torch
        from torch_backend.abi import DeviceLibrary, MemoryKind
        from torch_backend.files import installed

        x = torch.zeros(1000, dtype=torch.uint8, device="xcpu")
        torch.xcpu.synchronize()
        address = DeviceLibrary.open(installed.reference_library("xcpu")).devices[0].allocate(1000, MemoryKind.HOST)
        memory = (ctypes.c_uint8 * 1000).from_address(address)
        is_kept = weakref.ref(memory)
        theirs = torch.frombuffer(memory, dtype=torch.uint8).fill_(7)
        del memory

        x.copy_(theirs, non_blocking=True)
        theirs[:10].copy_(x[:10], non_blocking=True)
        assert not torch.xcpu.current_stream().query(), "the host waited for a copy"
        del theirs
        assert is_kept(), "memory went away before it was read"
        assert x.sum() == 7000
        torch.xcpu.synchronize()
        assert not is_kept(), "memory stayed when it was read"
        """,
        env={"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300000"},
    )


def test_errors_do_not_stop_other_streams(delayed: ModuleType, name: str, next_copy_fails: Callable[[], None]) -> None:
    side = delayed.Stream()
    x, y, source = torch.zeros(10, device=name), torch.zeros(10, device=name), pinned(torch.ones(10))
    delayed.synchronize()
    next_copy_fails()
    x.copy_(source, non_blocking=True)
    with delayed.stream(side):
        y.copy_(source, non_blocking=True)
        event = side.record_event()
    with pytest.raises(RuntimeError, match="memory_copy fails with INTERNAL"):
        delayed.synchronize()
    event.synchronize()
    assert y.sum().item() == 10


TRAINING = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
).to("xcpu")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
side = torch.xcpu.Stream()
data = [(torch.randn(4, 3, 8, 8).pin_memory(), torch.randint(4, (4,)).pin_memory()) for _ in range(6)]
losses = []
for x, y in data:
    with torch.xcpu.stream(side):
        x, y = x.to("xcpu", non_blocking=True), y.to("xcpu", non_blocking=True)
    torch.xcpu.current_stream().wait_stream(side)
    x.record_stream(torch.xcpu.current_stream())
    y.record_stream(torch.xcpu.current_stream())
    optimizer.zero_grad()
    loss = F.cross_entropy(F.dropout(model(x), 0.1), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print([loss.item().hex() for loss in losses], sum(p.double().sum().item() for p in model.parameters()).hex())
"""


def test_training_is_the_same_in_every_mode(run_python: RunPython) -> None:
    modes: list[dict[str, str]] = [
        {},
        {"TORCH_BACKEND_XCPU_ASYNC": "1"},
        {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-300"},
        {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_PROTECT": "1"},
    ]
    outputs = [run_python(TRAINING, env={"TORCH_BACKEND": "xcpu", **mode}).stdout for mode in modes]
    assert outputs == outputs[:1] * len(modes)


# A thread that waits may run the work itself. This kernel calls operators that autocast knows.
WAITING = """
import torch

a, b = torch.randn(30, 4, device="xcpu"), torch.randn(30, 4, device="xcpu")
alone = torch.ops.aten._cdist_forward(a, b, 2.0, 1).cpu()
for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode()):
    with mode:
        for _ in range(100):
            assert torch.equal(torch.ops.aten._cdist_forward(a, b, 2.0, 1).cpu(), alone)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for _ in range(100):
        torch.ops.aten._cdist_forward(a, b, 2.0, 1).cpu()
names = {event.key for event in profile.key_averages()}
assert "aten::_cdist_forward" in names and "aten::_euclidean_dist" not in names, names
"""


def test_work_does_not_see_the_modes_of_a_thread_that_waits_for_it(run_python: RunPython) -> None:
    run_python(WAITING, env={"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1"})


here = pytest.mark.skipif(
    "TORCH_BACKEND_XCPU_DELAY_US" in os.environ, reason="runs tests in a process with settings of their own"
)


def run_tests(*arguments: str | Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    env = clean_environment() | environment
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stdout[-6000:]
    assert " passed" in process.stdout


def run_level(device: str | Path) -> None:
    """Run the kit's level "async" where every operation is delayed."""
    plugin = ("-c", levels.SUITE / "pytest.ini", "-p", "torch_conformance.pytest_plugin", "--device", str(device))
    settings = {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"}
    run_tests(*plugin, levels.find("async").path, environment=settings | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


@pytest.fixture(scope="session")
def device_that_declares_less(build_plugin: BuildPlugin) -> Path:
    """xcpu, on which the core times events with the host's clock, makes a new one per record, and stages copies."""
    less = "TB_CAP_EVENT_TIMING|TB_CAP_EVENT_RERECORD|TB_CAP_PEER"
    return build_plugin(f"WITHOUT=({less})", source="less.c", over="xcpu")


@here
def test_errors_with_delays() -> None:
    only = "test_errors_of or test_errors_do or test_operators or test_a_result"
    run_tests("-k", only, Path(__file__), environment=ENVIRONMENT)


@here
def test_errors_with_delays_on_a_device_that_declares_less(device_that_declares_less: Path) -> None:
    environment = ENVIRONMENT | {"TORCH_BACKEND_PATH": os.fspath(device_that_declares_less)}
    run_tests("-k", "test_errors_of or test_errors_do", Path(__file__), environment=environment)


@here
def test_the_level_with_delays() -> None:
    run_level("xcpu")


@here
def test_the_level_on_a_device_that_declares_less(device_that_declares_less: Path, run_python: RunPython) -> None:
    environment = ENVIRONMENT | {"TORCH_BACKEND_PATH": os.fspath(device_that_declares_less)}
    code = "import torch; print(*sorted(torch.xcpu.get_device_properties().capabilities))"
    declared = run_python(code, env=environment).stdout.split()
    assert declared == ["ASYNC", "GRAPH", "HOST_ACCESS", "HOST_COHERENT", "PAGEABLE_ACCESS", "VIRTUAL_MEMORY"]
    run_level(device_that_declares_less)
