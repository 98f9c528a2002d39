"""Asynchronous devices: errors that come late, and what does not wait, on xcpu with delays.

What every asynchronous device does is tested by the kit's level "async".
"""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures import BuildPlugin, RunPython, in_process
from torch import Tensor

from torch_backend import _C
from torch_backend.abi import DeviceLibrary, MemoryKind
from torch_backend.files import installed

DELAYED = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": "3000",
    "TORCH_BACKEND_XCPU_FAULT": "",  # so that it can be changed later
}


def with_less(build_plugin: BuildPlugin, less: bool) -> dict[str, Any]:
    """Where the core times events with the host's clock, makes a new one per record, and stages copies."""
    without = "WITHOUT=(TB_CAP_EVENT_TIMING|TB_CAP_EVENT_RERECORD|TB_CAP_PEER)"
    return DELAYED | ({"TORCH_BACKEND_PATH": build_plugin(without, source="less.c", over="xcpu")} if less else {})


def next_copy_fails() -> None:
    """When it runs."""
    _C.set_option("xcpu.fault", "memory_copy=INTERNAL@1")


@pytest.mark.parametrize("less", [False, True])
@in_process(with_less)
def test_errors_of_asynchronous_work_are_raised_later(less: bool) -> None:
    x, source = torch.zeros(10, device="xcpu"), torch.ones(10).pin_memory()
    torch.xcpu.synchronize()
    next_copy_fails()
    x.copy_(source, non_blocking=True)
    with pytest.raises(RuntimeError, match="memory_copy fails with INTERNAL"):
        torch.xcpu.synchronize()
    torch.xcpu.synchronize()
    assert x.copy_(source).sum().item() == 10


@pytest.mark.parametrize("less", [False, True])
@in_process(with_less)
def test_errors_do_not_stop_other_streams(less: bool) -> None:
    side = torch.xcpu.Stream()
    x, y, source = torch.zeros(10, device="xcpu"), torch.zeros(10, device="xcpu"), torch.ones(10).pin_memory()
    torch.xcpu.synchronize()
    next_copy_fails()
    x.copy_(source, non_blocking=True)
    with torch.xcpu.stream(side):
        y.copy_(source, non_blocking=True)
        event = side.record_event()
    with pytest.raises(RuntimeError, match="memory_copy fails with INTERNAL"):
        torch.xcpu.synchronize()
    event.synchronize()
    assert y.sum().item() == 10


@in_process(DELAYED)
def test_errors_of_kernels() -> None:
    x = torch.arange(3.0, device="xcpu")
    index = torch.tensor([0, 7]).pin_memory().to("xcpu", non_blocking=True)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        torch.gather(x, 0, index).cpu()
    torch.xcpu.synchronize()
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        x[index].cpu()
    torch.xcpu.synchronize()
    assert (x + 1).tolist() == [1, 2, 3]


def do_not_wait(expressions: list[Callable[[Tensor], Tensor]], inputs: list[Tensor]) -> None:
    on_device = [x.to("xcpu") for x in inputs]
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as profile:
        results = [expression(x) for expression in expressions for x in on_device]
    assert [event.name for event in profile.events() if event.name == "stream_synchronize"] == []
    for result, expected in zip(results, (expression(x) for expression in expressions for x in inputs), strict=True):
        torch.testing.assert_close(result.cpu(), expected)


@in_process(DELAYED)
def test_operators_with_numbers_do_not_wait_for_the_device() -> None:
    """Also in how they choose the result's dtype, a number is no tensor."""
    do_not_wait(
        [
            lambda x: x * 2,
            lambda x: x * 2.5,
            lambda x: x + 1j,
            lambda x: 1 - x,
            lambda x: x / 3,
            lambda x: torch._foreach_mul([x], 2.5)[0],
        ],
        [torch.arange(4, dtype=dtype) for dtype in (torch.int64, torch.float32, torch.float64)],
    )


def in_place(change: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def changed(x: Tensor) -> Tensor:
        copy = x.clone()
        change(copy)
        return copy

    return changed


@in_process(DELAYED)
def test_operators_of_a_training_step_do_not_wait_for_the_device() -> None:
    do_not_wait(
        [
            in_place(lambda x: torch._foreach_mul_([x], 0.9)),
            in_place(lambda x: torch._foreach_lerp_([x], [x + 1], 0.1)),
            in_place(lambda x: torch.add(x, x, alpha=2, out=x)),
            lambda x: torch.nn.functional.layer_norm(x, (6,)),
            lambda x: torch.nn.functional.group_norm(x, 2),
            lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
            lambda x: torch.max(x, 1).values,
            lambda x: torch.softmax(x.t(), 0),
            lambda x: x @ x.t(),
        ],
        [torch.randn(4, 6)],
    )


@in_process(DELAYED | {"TORCH_BACKEND_XCPU_DELAY_US": "300000"})
def test_memory_that_others_pinned_is_kept_and_not_waited_for() -> None:
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

# Where a kernel is called at once, the state that it draws from is filled as far as it reads: see draws_few.
RANDOM_NUMBERS = """
import zlib
import torch

FLOATING = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WHOLE = [torch.int64, torch.uint8, torch.bool]
CALLS = {
    "normal_": ([3.0, 2.0], FLOATING + [torch.complex64, torch.complex128]),
    "uniform_": ([-1.0, 2.0], FLOATING),
    "bernoulli_": ([0.3], FLOATING + WHOLE),
    "random_": ([], FLOATING + WHOLE),
    "exponential_": ([], FLOATING),
    "geometric_": ([0.3], FLOATING + WHOLE[:2]),
    "log_normal_": ([], FLOATING),
    "cauchy_": ([], FLOATING),
}
torch.manual_seed(7)
drawn = {}
for name, (arguments, dtypes) in CALLS.items():
    for dtype in dtypes:
        for count in (0, 1, 15, 16, 17, 31, 139, 140, 141, 700):
            x = getattr(torch.empty(count, dtype=dtype, device="xcpu"), name)(*arguments)
            drawn[name, dtype, count] = x.cpu()
for count in (0, 1, 16, 700):
    drawn["randperm", count] = torch.randperm(count, device="xcpu").cpu()
    resized = torch.randperm(count, out=torch.empty(0, dtype=torch.int64, device="xcpu"))
    drawn["randperm, resized", count] = resized.cpu()
    drawn["random_ from", count] = torch.randint(-(2**62), 2**62, (count,), device="xcpu").cpu()
    p = torch.rand(count, device="xcpu", dtype=torch.float64)
    drawn["bernoulli", count] = torch.stack([torch.bernoulli(p), torch.empty_like(p).bernoulli_(p)]).cpu()
print({call: zlib.crc32(bytes(x.contiguous().view(torch.uint8).flatten().tolist())) for call, x in drawn.items()})
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


def test_random_numbers_are_the_same_in_every_mode(run_python: RunPython) -> None:
    modes = [{}, {"TORCH_BACKEND_XCPU_ASYNC": "1"}]
    outputs = [run_python(RANDOM_NUMBERS, env={"TORCH_BACKEND": "xcpu", **mode}).stdout for mode in modes]
    assert outputs[0] == outputs[1]


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
