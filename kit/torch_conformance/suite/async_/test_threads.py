"""Many threads use one device at once."""

from types import ModuleType

import torch
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, keep_busy, pinned
from torch_conformance.threads import in_threads


def test_threads_share_the_default_stream(device: str) -> None:
    """What one thread enqueues after another one did comes after it."""
    x = torch.zeros(1000, device=device)
    source = pinned(torch.ones(1000))

    def work() -> None:
        keep_busy(device)
        x.copy_(source, non_blocking=True)

    in_threads([work])
    assert_all(x + 1, 2, "an addition after a copy that another thread enqueued")


@needs.feature("streams")
def test_a_stream_per_thread(device: str, backend: ModuleType) -> None:
    """Threads with a stream each compute what one would compute alone."""

    def work(number: int) -> None:
        with backend.stream(backend.Stream()):
            x = pinned(torch.full((500,), float(number))).to(device, non_blocking=True)
            for _ in range(10):
                x = x + torch.ones(500, device=device)
            assert_all(x, number + 10, f"the sum of thread {number}")

    in_threads([lambda number=number: work(number) for number in range(6)])


def test_threads_on_one_stream(device: str) -> None:
    """Threads that all use one stream, each for tensors of its own, do not mix up their work."""

    def work(number: int) -> None:
        x, source = torch.zeros(1000, device=device), pinned(torch.full((1000,), float(number)))
        for step in range(15):
            y = torch.empty(1000, device=device).copy_(source, non_blocking=True)
            x.add_(y)
            assert_all(y, number, f"what thread {number} copied in step {step}")
        assert_all(x, 15 * number, f"the sum of thread {number}")

    in_threads([lambda number=number: work(number) for number in range(1, 5)])


@needs.feature("streams")
def test_threads_wait_at_once(device: str, backend: ModuleType) -> None:
    """Threads that synchronize the device, a stream and an event at once all return, with the work done."""
    back = pinned(torch.zeros(1000))
    x = torch.full((1000,), 3.0, device=device)
    stream = backend.current_stream()
    keep_busy(device, 20)
    back.copy_(x, non_blocking=True)
    event = stream.record_event()

    def waiting(wait: object) -> None:
        assert callable(wait)
        wait()
        assert_all(back, 3, "a thread's wait returned before the work was done")

    waits = (backend.synchronize, stream.synchronize, event.synchronize) * 2
    in_threads([lambda wait=wait: waiting(wait) for wait in waits])


@needs.feature("streams")
def test_a_pipeline_of_threads(device: str, backend: ModuleType) -> None:
    """One thread loads on its stream, the next computes on another, and an event per batch is all that orders them."""
    count = 12
    batches: list[torch.Tensor] = [torch.empty(0)] * count
    loaded = [backend.Event() for _ in range(count)]
    loader, worker = backend.Stream(), backend.Stream()

    def load() -> None:
        with backend.stream(loader):
            for number in range(count):
                keep_busy(device, 1)
                batches[number] = pinned(torch.full((2000,), float(number))).to(device, non_blocking=True)
                loaded[number].record()

    in_threads([load])
    results = []
    with backend.stream(worker):
        for batch, event in zip(batches, loaded, strict=True):
            event.wait()
            results.append(batch * 2)
            batch.record_stream(worker)
    batches.clear()
    worker.synchronize()
    for number, result in enumerate(results):
        assert_all(result, 2 * number, f"batch {number}")
