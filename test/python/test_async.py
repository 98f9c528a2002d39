"""Asynchronous devices: whatever is enqueued where, results are those of doing one thing after the other.

The tests need a device whose work takes a while. On any other, the last ones of this file run them in a process of
their own on xcpu, where every asynchronous operation waits for some milliseconds first.
"""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import BuildPlugin, RunPython, clean_environment
from torch import Tensor

from torch_backend import _C, _paths

DELAY_MS = 3
ENVIRONMENT = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": str(DELAY_MS * 1000),
    "TORCH_BACKEND_XCPU_FAULT": "",  # so that it can be changed later
}
MANY = 20  # operations that keep a stream busy for long enough to look at it


@pytest.fixture
def delayed(backend: ModuleType) -> Iterator[ModuleType]:
    """The device's module, where every asynchronous operation is delayed."""
    delay = os.environ.get("TORCH_BACKEND_XCPU_DELAY_US", "0").split("-")[0]
    if "ASYNC" not in backend.get_device_properties().capabilities or int(delay) < DELAY_MS * 1000:
        pytest.skip("needs an asynchronous device with delays")
    backend.synchronize()
    yield backend
    backend.synchronize()


def pinned(values: Tensor) -> Tensor:
    return values.pin_memory()


def keep_busy(x: Tensor, source: Tensor) -> None:
    """Enqueue copies that take MANY delays in all."""
    for _ in range(MANY):
        x.copy_(source, non_blocking=True)


# ---- one stream ----


def test_kernels_come_after_copies(delayed: ModuleType, name: str) -> None:
    for number in range(5):
        x = pinned(torch.full((1000,), float(number))).to(name, non_blocking=True)
        y = x * 2 + 1
        y[::2] = x[::2]
        assert torch.equal(y.cpu()[:4], torch.tensor([1.0, 2.0, 1.0, 2.0]) * number + torch.tensor([0.0, 1.0] * 2))


def test_copies_come_after_kernels(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(1000, device=name)
    back = torch.full((10, 1000), -1.0, pin_memory=True)
    for row in back:
        x += 1
        row.copy_(x, non_blocking=True)
    delayed.synchronize()
    assert torch.equal(back, torch.arange(1.0, 11)[:, None].expand(10, 1000))


def test_copies_come_after_copies(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(1000, device=name)
    source, back = pinned(torch.arange(1000.0)), torch.zeros(1000, pin_memory=True)
    x.copy_(source, non_blocking=True)
    y = x.clone()
    x.zero_()
    z = torch.empty(2000, device=name)[::2].copy_(y)
    back.copy_(z, non_blocking=True)
    delayed.synchronize()
    assert torch.equal(back, source)
    assert x.sum().item() == 0


def test_host_reads_wait(delayed: ModuleType, name: str) -> None:
    for read in (Tensor.item, lambda t: t.cpu().item(), lambda t: t.tolist(), bool, lambda t: int(repr(t)[7:8])):
        x = torch.zeros((), device=name)
        x.copy_(pinned(torch.ones(())), non_blocking=True)
        assert read(x) == 1
        assert read(x * 0) == 0


def test_operators_that_need_values_wait(delayed: ModuleType, name: str) -> None:
    x = pinned(torch.tensor([0.0, 3.0, 0.0, 5.0])).to(name, non_blocking=True)
    assert x.nonzero().flatten().tolist() == [1, 3]
    assert x[x > 1].tolist() == [3, 5]
    assert x.unique().tolist() == [0, 3, 5]
    assert torch.repeat_interleave(x, (x + 1).long()).numel() == 12
    assert torch.equal(x, x.clone())
    assert torch.allclose(x, x + 1e-9)


def test_falling_back_waits(delayed: ModuleType, name: str) -> None:
    matrix = torch.eye(4) * 2
    x = pinned(matrix).to(name, non_blocking=True)
    inverse = torch.linalg.inv(x)
    x.copy_(pinned(torch.zeros(4, 4)), non_blocking=True)
    q, r = torch.linalg.qr(inverse + x)
    torch.testing.assert_close((q @ r).cpu(), torch.eye(4) / 2)


def test_random_numbers_come_in_order(delayed: ModuleType, name: str) -> None:
    draws = []
    for wait in (False, True):
        delayed.manual_seed(8)
        parts = []
        for _ in range(5):
            parts += [torch.rand(100, device=name), torch.nn.functional.dropout(torch.ones(100, device=name))]
            if wait:
                delayed.synchronize()
        draws.append(torch.stack(parts).cpu())
    assert torch.equal(*draws)


# ---- arguments that change after the call ----


def test_host_scalars_may_change_afterwards(delayed: ModuleType, name: str) -> None:
    x, two = torch.ones(1000, device=name), torch.tensor(2.0)
    y = x * two
    x.mul_(two).add_(two)
    two.fill_(50)
    assert (y.sum().item(), x.sum().item()) == (2000, 4000)


def test_host_indices_may_change_afterwards(delayed: ModuleType, name: str) -> None:
    x, index = torch.arange(10.0, device=name), torch.tensor([7, 8])
    keep_busy(torch.empty(10, device=name), pinned(torch.zeros(10)))
    y = x[index]
    x[index] = -1.0
    index.zero_()
    assert y.tolist() == [7, 8]
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, 9]


def test_pageable_sources_may_change_afterwards(delayed: ModuleType, name: str) -> None:
    source = torch.arange(1000.0)
    x = source.to(name, non_blocking=True)
    y = torch.empty(500, 2, device=name).copy_(source.view(2, 500).t(), non_blocking=True)
    source.zero_()
    assert torch.equal(x.cpu(), torch.arange(1000.0))
    assert torch.equal(y.cpu(), torch.arange(1000.0).view(2, 500).t())


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in-place": lambda x: x.add_(100),
    "transposed": lambda x: x.t_(),
    "resized": lambda x: x.resize_(5),
    "grown": lambda x: x.resize_(1000, 1000).fill_(3),
    "emptied": lambda x: x.untyped_storage().resize_(0),
    "set": lambda x: x.set_(torch.zeros(7, device=x.device)),
    "data": lambda x: setattr(x, "data", torch.zeros(2, device=x.device)),
    "copied into": lambda x: x.copy_(torch.zeros(30, 40)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_inputs_may_change_afterwards(delayed: ModuleType, name: str, change: Callable[[Tensor], object]) -> None:
    expected = torch.arange(1200.0).view(30, 40)
    x = pinned(expected).to(name, non_blocking=True)
    keep_busy(torch.empty(10, device=name), pinned(torch.zeros(10)))
    y, z = x * 2, x.t() + 1
    s = x.sum(0)
    change(x)
    refill = [torch.full((30, 40), -7.0, device=name) for _ in range(3)]
    assert torch.equal(y.cpu(), expected * 2)
    assert torch.equal(z.cpu(), expected.t() + 1)
    torch.testing.assert_close(s.cpu(), expected.sum(0))
    assert all((part == -7).all() for part in refill)


def test_temporaries_may_go_away(delayed: ModuleType, name: str) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(10):
            x = ((x * 3 - x.clone()).view(20, 50).t().contiguous().view(-1) + 1) / 2
        return x

    start = torch.linspace(0, 1, 1000)
    torch.testing.assert_close(chain(pinned(start).to(name, non_blocking=True)).cpu(), chain(start))


def test_resizing_keeps_what_is_on_its_way(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(4, device=name)
    x.copy_(pinned(torch.arange(4.0)), non_blocking=True)
    x.resize_(100_000)
    assert x[:4].tolist() == [0, 1, 2, 3]
    out = torch.empty(0, device=name)
    torch.add(x[:4], 1, out=out)
    assert out.tolist() == [1, 2, 3, 4]


# ---- pinned memory ----


def test_pinned_buffers_are_not_reused_too_early(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(10, 1000, device=name)
    pointers = set()
    for number, row in enumerate(x):
        source = pinned(torch.full((1000,), float(number)))
        pointers.add(source.data_ptr())
        row.copy_(source, non_blocking=True)
        del source
    assert len(pointers) > 1
    assert torch.equal(x.cpu(), torch.arange(10.0)[:, None].expand(10, 1000))


def test_pinned_buffers_are_reused_in_the_end(delayed: ModuleType, name: str) -> None:
    source = pinned(torch.zeros(123_457))
    pointer = source.data_ptr()
    x = source.to(name, non_blocking=True)
    del source
    delayed.synchronize()
    assert x.sum().item() == 0
    assert torch.empty(123_457, pin_memory=True).data_ptr() == pointer


def test_results_are_there_after_the_event(delayed: ModuleType, name: str) -> None:
    x = torch.full((1000,), 3.0, device=name)
    back = torch.zeros(1000, pin_memory=True)
    keep_busy(torch.empty(10, device=name), pinned(torch.zeros(10)))
    back.copy_(x, non_blocking=True)
    event = delayed.current_stream().record_event()
    assert back.sum().item() == 0  # still on its way
    event.synchronize()
    assert back.sum().item() == 3000


# ---- events ----


def test_events_are_pending_until_the_work_is_done(delayed: ModuleType, name: str) -> None:
    x, source = torch.zeros(10, device=name), pinned(torch.ones(10))
    stream, event = delayed.current_stream(), delayed.Event()
    keep_busy(x, source)
    event.record()
    assert not event.query()
    assert not stream.query()
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert stream.query()


def test_times_are_in_order(delayed: ModuleType, name: str) -> None:
    x, source = torch.zeros(10, device=name), pinned(torch.ones(10))
    events = [delayed.Event(enable_timing=True) for _ in range(5)]
    for event in events:
        event.record()
        keep_busy(x, source)
    delayed.synchronize()
    times = [events[0].elapsed_time(event) for event in events]
    assert times[0] == 0
    assert times == sorted(times)
    assert all(after - before > 0.9 * MANY * DELAY_MS for before, after in itertools.pairwise(times))


def test_an_event_recorded_again_means_the_later_point(delayed: ModuleType, name: str) -> None:
    x, source = torch.zeros(10, device=name), pinned(torch.ones(10))
    event = delayed.Event()
    event.record()
    event.synchronize()
    keep_busy(x, source)
    event.record()
    assert not event.query()
    event.synchronize()
    assert x.sum().item() == 10


# ---- several streams ----


def test_streams_do_not_wait_for_each_other(delayed: ModuleType, name: str) -> None:
    busy, idle = delayed.Stream(), delayed.Stream()
    x, source = torch.zeros(10, device=name), pinned(torch.ones(10))
    delayed.synchronize()
    with delayed.stream(busy):
        keep_busy(x, source)
    with delayed.stream(idle):
        y = source.to(name, non_blocking=True)
    idle.synchronize()
    assert not busy.query()
    busy.synchronize()
    assert y.sum().item() == 10


@pytest.mark.parametrize("wait", ["event", "stream", "event of torch"])
def test_waiting_for_another_stream(delayed: ModuleType, name: str, wait: str) -> None:
    producer, consumer = delayed.Stream(), delayed.Stream()
    source = pinned(torch.arange(1000.0))
    for _ in range(3):
        with delayed.stream(producer):
            x = torch.zeros(1000, device=name)
            keep_busy(x, source)
            x += 1
        if wait == "event":
            consumer.wait_event(producer.record_event())
        elif wait == "stream":
            consumer.wait_stream(producer)
        else:
            event = torch.Event(name)
            event.record(producer)
            event.wait(consumer)
        with delayed.stream(consumer):
            y = x * 2
        consumer.synchronize()
        assert torch.equal(y.cpu(), source * 2 + 2)
        x.record_stream(consumer)


def test_ping_pong_between_streams(delayed: ModuleType, name: str) -> None:
    streams = [delayed.Stream() for _ in range(3)]
    x = torch.zeros(100, device=name)
    before = delayed.current_stream()
    for number in range(12):
        stream = streams[number % 3]
        stream.wait_stream(before)
        with delayed.stream(stream):
            x += 1 if number % 2 else x
        before = stream
    before.synchronize()
    expected = 0
    for number in range(12):
        expected += 1 if number % 2 else expected
    assert (x == expected).all()


def test_record_stream_keeps_memory(delayed: ModuleType, name: str) -> None:
    side = delayed.Stream()
    x = torch.full((50_000,), 2.0, device=name)
    pointer = x.data_ptr()
    side.wait_stream(delayed.current_stream())
    with delayed.stream(side):
        keep_busy(torch.empty(10, device=name), pinned(torch.zeros(10)))
        y = x * 3
        x.record_stream(side)
    del x
    other = torch.full((50_000,), 9.0, device=name)
    assert other.data_ptr() != pointer
    side.synchronize()
    assert (y == 6).all()
    del other
    delayed.synchronize()
    again = [torch.empty(50_000, device=name) for _ in range(4)]
    assert pointer in {tensor.data_ptr() for tensor in again}


def test_memory_returns_to_its_own_stream_at_once(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(60_000, device=name)
    pointer = x.data_ptr()
    keep_busy(x, pinned(torch.ones(60_000)))
    y = x + 1
    del x
    again = torch.full((60_000,), 5.0, device=name)  # comes after the addition on this stream
    assert again.data_ptr() == pointer
    assert (y == 2).all()
    assert (again == 5).all()


def test_memory_of_a_side_stream(delayed: ModuleType, name: str) -> None:
    side = delayed.Stream()
    with delayed.stream(side):
        x = torch.empty(70_000, device=name)
        pointer = x.data_ptr()
        keep_busy(x, pinned(torch.ones(70_000)))
    del x
    on_default = torch.empty(70_000, device=name)
    with delayed.stream(side):
        on_side = torch.empty(70_000, device=name)
    assert on_default.data_ptr() != pointer
    assert on_side.data_ptr() == pointer


@pytest.mark.usefixtures("two_devices")
def test_copies_between_devices(delayed: ModuleType, name: str) -> None:
    source = pinned(torch.arange(1000.0))
    x, y = torch.zeros(1000, device=f"{name}:0"), torch.zeros(1000, device=f"{name}:1")
    for number in range(5):
        keep_busy(x, source)
        x += number
        y.copy_(x, non_blocking=True)
        x.zero_()
        z = y.view(20, 50).t() * 2
        w = z.to(f"{name}:0", torch.float64, non_blocking=True)
        assert torch.equal(w.cpu(), ((source + number).view(20, 50).t() * 2).double())


@pytest.mark.usefixtures("two_devices")
def test_synchronizing_one_device(delayed: ModuleType, name: str) -> None:
    x, y = torch.zeros(10, device=f"{name}:0"), torch.zeros(10, device=f"{name}:1")
    source = pinned(torch.ones(10))
    keep_busy(y, source)
    x.copy_(source, non_blocking=True)
    delayed.synchronize(0)
    assert not delayed.current_stream(1).query()
    delayed.synchronize(1)
    assert delayed.current_stream(1).query()


# ---- threads ----


def test_threads_share_the_default_stream(delayed: ModuleType, name: str) -> None:
    x = torch.zeros(1000, device=name)
    thread = threading.Thread(target=keep_busy, args=(x, pinned(torch.ones(1000))))
    thread.start()
    thread.join()
    assert (x + 1).sum().item() == 2000


def test_a_stream_per_thread(delayed: ModuleType, name: str) -> None:
    results: dict[int, Tensor] = {}

    def work(number: int) -> None:
        with delayed.stream(delayed.Stream()):
            x = pinned(torch.full((500,), float(number))).to(name, non_blocking=True)
            for _ in range(10):
                x = x + torch.ones(500, device=name)
            results[number] = x.cpu()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[number] == number + 10).all() for number in range(4))


# ---- autograd ----


def test_backward_runs_on_the_forwards_stream(delayed: ModuleType, name: str) -> None:
    side, seen = delayed.Stream(), []
    x = torch.arange(100.0, device=name, requires_grad=True)
    side.wait_stream(delayed.current_stream())
    with delayed.stream(side):
        y = x * x
        y.register_hook(lambda gradient: seen.append(delayed.current_stream()))
        loss = (y * 2).sum()
    delayed.current_stream().wait_stream(side)
    loss.backward()
    assert torch.equal(x.grad.cpu(), torch.arange(100.0) * 4)
    assert seen == [side]


def test_gradients_of_a_side_stream_can_be_used(delayed: ModuleType, name: str) -> None:
    side = delayed.Stream()
    weight = torch.ones(50, 50, device=name, requires_grad=True)
    for round in range(1, 4):
        side.wait_stream(delayed.current_stream())
        with delayed.stream(side):
            x = pinned(torch.full((50, 50), float(round))).to(name, non_blocking=True)
            ((weight * x) * 1).sum().backward()
        # backward() makes the stream it was called on wait; here that is the side stream
        delayed.current_stream().wait_stream(side)
        assert (weight.grad == round).all()
        weight.grad = None


def test_backward_called_on_another_stream(delayed: ModuleType, name: str) -> None:
    caller = delayed.Stream()
    x = torch.ones(1000, device=name, requires_grad=True)
    loss = (x * 3).sum()
    caller.wait_stream(delayed.current_stream())
    with delayed.stream(caller):
        loss.backward()
        gradient = x.grad * 2
    caller.synchronize()
    assert (gradient == 6).all()


# ---- errors ----


@pytest.fixture
def next_copy_fails(delayed: ModuleType) -> Iterator[Callable[[], None]]:
    """Call it to let the next copy fail when it runs."""
    if "TORCH_BACKEND_XCPU_FAULT" not in os.environ:
        pytest.skip("needs a device that can be told to fail")
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


# ---- everything together ----

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


here = pytest.mark.skipif("TORCH_BACKEND_XCPU_DELAY_US" in os.environ, reason="the other tests of this file run here")


def run_this_file(**environment: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not every_mode", Path(__file__)]
    env = clean_environment() | ENVIRONMENT | environment
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stdout[-6000:]
    assert " passed" in process.stdout


@here
def test_with_delays() -> None:
    run_this_file()


@here
def test_with_delays_on_a_device_that_declares_less(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    """The core times events with the host's clock, makes a new one per record, and stages between devices."""
    less = "TB_CAP_EVENT_TIMING|TB_CAP_EVENT_RERECORD|TB_CAP_PEER"
    library = build_plugin(
        f"WITHOUT=({less})", f'LIBRARY="{_paths.reference_library("xcpu")}"', name="xcpu", source="less.c"
    )
    environment = {"TORCH_BACKEND_PATH": os.fspath(library)}
    code = "import torch; print(*sorted(torch.xcpu.get_device_properties().capabilities))"
    declared = run_python(code, env=ENVIRONMENT | environment).stdout.split()
    assert declared == ["ASYNC", "HOST_ACCESS", "HOST_COHERENT", "PAGEABLE_ACCESS"]
    run_this_file(**environment)
