"""Streams, events and copies of two devices."""

from types import ModuleType

import torch
from torch_conformance import needs
from torch_conformance.suite.async_._support import (
    ATTEMPTS,
    assert_all,
    assert_idle,
    attempts_beside_work,
    keep_busy,
    pinned,
)
from torch_conformance.threads import in_threads

pytestmark = [needs.feature("streams"), needs.devices(2)]


def test_a_stream_makes_its_device_current(device: str, backend: ModuleType) -> None:
    """A with statement on a stream of another device makes that device current, and both are as before afterwards."""
    stream, there_before = backend.Stream(1), backend.current_stream(1)
    with backend.stream(stream):
        assert backend.current_device() == 1
        assert backend.current_stream() == stream
        assert torch.ones(1, device=device).device.index == 1
    assert backend.current_device() == 0
    assert backend.current_stream(1) == there_before


def test_set_stream(backend: ModuleType) -> None:
    """set_stream makes a stream current on its device, and that device current."""
    before, stream = backend.current_stream(1), backend.Stream(1)
    try:
        backend.set_stream(stream)
        assert backend.current_device() == 1
        assert backend.current_stream() == stream
        backend.set_stream(None)
        assert backend.current_stream() == stream
    finally:
        backend.set_stream(before)
        backend.set_device(0)


def test_copies_between_devices(device: str) -> None:
    """A copy to another device comes after the work on the one and before that on the other."""
    source = pinned(torch.arange(1000.0))
    x, y = torch.zeros(1000, device=f"{device}:0"), torch.zeros(1000, device=f"{device}:1")
    for number in range(5):
        keep_busy(f"{device}:0", 3)
        x.copy_(source, non_blocking=True)
        x += number
        keep_busy(f"{device}:1", 3)
        y.copy_(x, non_blocking=True)
        x.zero_()
        z = y.view(20, 50).t() * 2
        w = z.to(f"{device}:0", torch.float16, non_blocking=True)
        expected = ((source + number).view(20, 50).t() * 2).half()
        assert torch.equal(w.cpu(), expected), f"round {number} of copies there and back"


def test_memory_of_a_copy_between_devices(device: str) -> None:
    """Both sides of a copy between devices may be freed, and their memory filled, while it is waiting."""
    for number in range(1, 6):
        x = torch.full((50_000,), float(number), device=f"{device}:0")
        keep_busy(f"{device}:0", 3)
        y = x.to(f"{device}:1", non_blocking=True)
        del x
        refill = torch.full((50_000,), -1.0, device=f"{device}:0")
        assert_all(y, number, "a copy to another device read memory that was filled after it")
        del y
        assert_all(refill, -1, "memory of the source of a copy")


def test_synchronizing_one_device(device: str, backend: ModuleType) -> None:
    """synchronize(0) completes the work of device 0, and synchronize(1) that of device 1."""
    backs = []
    for index in (0, 1):
        x = torch.full((1000,), 3.0, device=f"{device}:{index}")
        backs.append(pinned(torch.zeros(1000)))
        with backend.device(index):
            keep_busy(device)
        backs[index].copy_(x, non_blocking=True)
    for index in (0, 1):
        backend.synchronize(index)
        assert_all(backs[index], 3, f"synchronize({index}) returned before a copy from that device was done")
        assert_idle(backend.current_stream(index), f"after synchronize({index})")


@needs.feature("asynchronous")
def test_devices_do_not_wait_for_each_other(device: str, backend: ModuleType) -> None:
    """Synchronizing one device does not wait for the work of the other."""
    for event in attempts_beside_work(f"{device}:1", backend.current_stream(1)):
        torch.ones(10, device=f"{device}:0")
        backend.synchronize(0)
        if not event.query():
            return
    raise AssertionError(f"synchronize(0) returned after the copies on device 1 each of {ATTEMPTS} times")


def test_a_stream_waits_for_another_device(device: str, backend: ModuleType) -> None:
    """A stream that waits for an event of another device comes after the work before that event."""
    x = torch.zeros(1000, device=f"{device}:0")
    back = pinned(torch.zeros(1000))
    keep_busy(f"{device}:0")
    x.fill_(4)
    back.copy_(x, non_blocking=True)
    event = backend.current_stream(0).record_event()
    side = backend.Stream(1)
    side.wait_event(event)
    with backend.stream(side):
        y = back.to(f"{device}:1", non_blocking=True)
    side.synchronize()
    assert_all(y, 4, "a stream of device 1 did not wait for an event of device 0")


def test_a_thread_per_device(device: str) -> None:
    """Threads that each use another device do not disturb each other."""

    def work(index: int) -> None:
        place = f"{device}:{index}"
        x = torch.zeros(1000, device=place)
        for number in range(20):
            x = x + pinned(torch.full((1000,), float(number))).to(place, non_blocking=True)
        assert_all(x, sum(range(20)), f"a sum on device {index}")

    in_threads([lambda index=index % 2: work(index) for index in range(4)])
