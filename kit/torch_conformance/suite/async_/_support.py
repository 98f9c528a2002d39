"""Keeping a device busy, and looking at what its work has left behind."""

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_conformance import routes

BUSY_MS = 10.0
"""How long work takes that a test puts before the step that must wait for it."""

ATTEMPTS = 20
"""How often a test tries to be done before other work is."""

_LONG_COPIES = 4
_LONG_COPY_BYTES = 64 << 20  # takes a device much longer than the host needs to enqueue it
_MAX_COPIES = 2000
_LOAD_BYTES = (4 << 20, 16 << 20, 64 << 20)
_TIMES_THE_HOST = 4  # what a copy takes the device, at least, that the host takes to enqueue it


@dataclass(frozen=True)
class _Load:
    """Copies that take a device some time."""

    target: Tensor
    source: Tensor
    milliseconds: float  # that one takes

    def enqueue(self, milliseconds: float) -> None:
        for _ in range(min(_MAX_COPIES, 1 + int(milliseconds / self.milliseconds))):
            self.target.copy_(self.source, non_blocking=True)


@functools.cache
def _load(device: torch.device) -> _Load:
    torch.accelerator.empty_cache()  # what stays should not keep a segment that an earlier test left
    for size in _LOAD_BYTES:
        target, source = _copy(device, size)
        times = [_milliseconds(target, source) for _ in range(4)]
        host, both = (min(column) for column in zip(*times, strict=True))
        if both >= _TIMES_THE_HOST * host:
            break
    return _Load(target, source, both)


def _copy(device: torch.device, size: int) -> tuple[Tensor, Tensor]:
    return torch.empty(size, dtype=torch.uint8, device=device), pinned(torch.zeros(size, dtype=torch.uint8))


def _milliseconds(target: Tensor, source: Tensor) -> tuple[float, float]:
    """What a copy takes the host to enqueue, and until it is done."""
    start = time.perf_counter()
    for _ in range(4):
        target.copy_(source, non_blocking=True)
    enqueued = time.perf_counter()
    torch.accelerator.synchronize(target.device)
    return (enqueued - start) * 1000 / 4, (time.perf_counter() - start) * 1000 / 4


def is_asynchronous() -> bool:
    """Whether work is enqueued, rather than done when it returns."""
    return routes.has("asynchronous")


def keep_busy(device: str, milliseconds: float = BUSY_MS) -> None:
    """Enqueue copies on the current stream of ``device`` that take about this long; none if it has no queues.

    What follows on the stream then comes late enough for anyone who does not wait for it to be too early. Without
    queues work is done when the call returns, and nothing can wait for it in vain.
    """
    if not is_asynchronous():
        return
    where = torch.device(device)
    if where.index is None:
        where = torch.device(where.type, torch.accelerator.current_device_index())
    _load(where).enqueue(milliseconds)


def attempts_beside_work(device: str, stream: torch.Stream) -> Iterator[torch.Event]:
    """Enqueue long copies on ``stream`` of ``device`` each time, and give an event after them.

    For a test of what must not wait for this work: whoever waits for it finds the event done every time. On a busy
    machine the host may be held up for longer than the copies take, but hardly so every time.
    """
    target, source = _copy(torch.device(device), _LONG_COPY_BYTES)
    for _ in range(ATTEMPTS):
        with stream:
            for _ in range(_LONG_COPIES):
                target.copy_(source, non_blocking=True)
        event = stream.record_event()
        try:
            yield event
        finally:
            event.synchronize()


def pinned(values: Tensor) -> Tensor:
    """The values in page-locked memory of the device, which reads it later than it is told to.

    pin_memory=True gives that of CUDA where PyTorch has it, whatever the device is. A device that has no such memory
    copies from any other.
    """
    return values.pin_memory() if routes.has("pinned memory") else values


def assert_all(tensor: Tensor, value: float, what: str) -> None:
    """Every element is ``value``. The message begins with ``what`` and tells where the first wrong one is."""
    wrong = (tensor.detach().cpu() != value).flatten().nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        found = tensor.detach().cpu().flatten()[first].item()
        raise AssertionError(
            f"{what}: {len(wrong)} of {tensor.numel()} elements are not {value}; the first is {found}, at {first}"
        )


def assert_idle(stream: torch.Stream, what: str) -> None:
    """The stream says that all of its work is done, at the latest after some seconds."""
    # Not at once: a device may have to ask its stream with an event, which takes a moment.
    deadline = time.monotonic() + 5
    while not stream.query():
        assert time.monotonic() < deadline, f"{what}: query() still says that there is work"
