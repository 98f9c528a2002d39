"""Events mark a point in a stream: the host asks whether it was passed, waits for it, and measures time with it."""

import itertools
import time
from types import ModuleType

import pytest
import torch
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, assert_idle, keep_busy, pinned
from torch_conformance.threads import in_threads

pytestmark = needs.feature("streams")


def test_an_event_that_was_never_recorded(backend: ModuleType) -> None:
    """An event that was never recorded counts as complete: nobody waits for it."""
    event = backend.Event()
    assert event.query() is True
    event.synchronize()
    event.wait()
    backend.current_stream().wait_event(event)
    backend.synchronize()


@needs.feature("asynchronous")
def test_an_event_is_pending_until_the_work_before_it_is_done(device: str, backend: ModuleType) -> None:
    """Right after much work an event is not complete; after synchronize() it is."""
    for milliseconds in (20, 100, 400):  # more, if the host was held up for longer
        event = backend.Event()
        keep_busy(device, milliseconds)
        event.record()
        pending = not event.query()
        event.synchronize()
        assert event.query() is True, "an event is not complete after its synchronize()"
        if pending:
            return
    raise AssertionError("an event recorded after 400 ms of copies was complete at once")


@pytest.mark.parametrize("wait", ["synchronize", "query"])
def test_a_complete_event_means_that_the_work_is_done(device: str, backend: ModuleType, wait: str) -> None:
    """When an event is complete, what was copied to pinned memory before it is there."""
    x, back = torch.full((1000,), 3.0, device=device), pinned(torch.zeros(1000))
    backend.synchronize()
    keep_busy(device)
    back.copy_(x, non_blocking=True)
    event = backend.current_stream().record_event()
    keep_busy(device)
    if wait == "synchronize":
        event.synchronize()
    else:
        while not event.query():
            pass
    assert_all(back, 3, "an event was complete before the copy to the host that it came after")


def test_an_event_does_not_wait_for_later_work(device: str, backend: ModuleType) -> None:
    """An event completes with the work before it, while the stream goes on with what follows."""
    before, after = backend.Event(), backend.Event()
    stream, other = backend.Stream(), backend.Stream()
    with backend.stream(stream):
        before.record()
        keep_busy(device, 30)
        after.record()
    before.synchronize()
    assert before.query() is True
    with backend.stream(other):
        other.wait_event(before)
        torch.ones(10, device=device)
    other.synchronize()  # would never end if an event meant what was recorded last
    after.synchronize()
    assert_idle(stream, "after the last event")


def test_an_event_recorded_again_means_the_later_point(device: str, backend: ModuleType) -> None:
    """Recording an event again replaces the point that it marks."""
    back = pinned(torch.zeros(1000))
    event = backend.Event()
    event.record()
    event.synchronize()
    for number in range(1, 4):
        x = torch.full((1000,), float(number), device=device)
        keep_busy(device)
        back.copy_(x, non_blocking=True)
        event.record()
        event.synchronize()
        assert_all(back, number, f"record number {number + 1} of an event did not replace the one before")


def test_a_wait_is_for_the_record_before_it(device: str, backend: ModuleType) -> None:
    """A stream that waits for an event does so for the point it marked then, though it is recorded again later."""
    producer, consumer = backend.Stream(), backend.Stream()
    source, x = pinned(torch.full((1000,), 6.0)), torch.zeros(1000, device=device)
    event = backend.Event()
    producer.wait_stream(backend.current_stream())
    with backend.stream(producer):
        keep_busy(device)
        x.copy_(source, non_blocking=True)
        event.record()
    consumer.wait_event(event)
    backend.default_stream().record_event(event)
    with backend.stream(consumer):
        y = x.clone()
    consumer.synchronize()
    producer.synchronize()
    assert_all(y, 6, "a wait was lost when its event was recorded again on another stream")


def test_an_event_may_go_away(device: str, backend: ModuleType) -> None:
    """A stream still waits for an event that is gone before the work was done."""
    producer, consumer = backend.Stream(), backend.Stream()
    source, x = pinned(torch.full((1000,), 6.0)), torch.zeros(1000, device=device)
    producer.wait_stream(backend.current_stream())
    with backend.stream(producer):
        keep_busy(device)
        x.copy_(source, non_blocking=True)
    for _ in range(3):
        event = producer.record_event()
        consumer.wait_event(event)
        del event
    others = [producer.record_event() for _ in range(3)]
    with backend.stream(consumer):
        y = x.clone()
    consumer.synchronize()
    assert_all(y, 6, "a wait was lost when its event was destroyed")
    assert len(others) == 3


def test_many_streams_wait_for_one_event(device: str, backend: ModuleType) -> None:
    """All streams that wait for one event see the work before it."""
    x, source = torch.zeros(1000, device=device), pinned(torch.full((1000,), 2.0))
    streams = [backend.Stream() for _ in range(5)]
    keep_busy(device)
    x.copy_(source, non_blocking=True)
    event = backend.current_stream().record_event()
    results = []
    for stream in streams:
        stream.wait_event(event)
        with backend.stream(stream):
            results.append(x + 1)
    for number, (stream, result) in enumerate(zip(streams, results, strict=True)):
        stream.synchronize()
        assert_all(result, 3, f"what stream {number} of {len(streams)} that wait computed")


def test_events_of_other_threads(device: str, backend: ModuleType) -> None:
    """An event recorded by one thread can be asked, and waited for, by others."""
    x, back = torch.full((1000,), 3.0, device=device), pinned(torch.zeros(1000))
    backend.synchronize()
    keep_busy(device)
    back.copy_(x, non_blocking=True)
    event = backend.current_stream().record_event()

    def wait() -> None:
        event.synchronize()
        assert event.query() is True
        assert_all(back, 3, "an event was complete in another thread before its work was done")

    in_threads([wait] * 3)


@needs.feature("event times")
def test_times_are_in_order(device: str, backend: ModuleType) -> None:
    """Times between events of one stream are never negative, and those of longer spans are longer."""
    events = [backend.Event(enable_timing=True) for _ in range(6)]
    for event in events:
        event.record()
        keep_busy(device, 2)
    backend.synchronize()
    times = [events[0].elapsed_time(event) for event in events]
    assert times[0] == 0, f"an event is {times[0]} ms after itself"
    assert times == sorted(times), f"later events have earlier times: {times}"
    for (one, start), (other, end) in itertools.combinations(zip(times, events, strict=True), 2):
        assert start.elapsed_time(end) == pytest.approx(other - one, abs=0.5), "times do not add up"


@needs.feature("event times")
def test_times_are_those_of_the_host(device: str, backend: ModuleType) -> None:
    """The time between two events is no longer than what passes on the host's clock around both."""
    start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
    backend.synchronize()
    before = time.perf_counter()
    start.record()
    keep_busy(device, 30)
    end.record()
    end.synchronize()
    passed = (time.perf_counter() - before) * 1000
    measured = start.elapsed_time(end)
    assert 0 <= measured <= passed * 1.05 + 1, f"the device measured {measured} ms of the {passed} ms that passed"


@needs.feature("event times")
@needs.feature("asynchronous")
def test_times_are_those_of_the_work(device: str, backend: ModuleType) -> None:
    """The time between two events is that which the work between them took on the device, not on the host."""
    for milliseconds in (30, 100, 300):  # more, if the host was held up for longer
        start, end = backend.Event(enable_timing=True), backend.Event(enable_timing=True)
        keep_busy(device, 5)  # so that the host has enqueued all before the device comes to it
        start.record()
        keep_busy(device, milliseconds)
        end.record()
        start.synchronize()
        before = time.perf_counter()
        end.synchronize()
        passed = (time.perf_counter() - before) * 1000
        measured = start.elapsed_time(end)
        if measured > passed / 2:
            return
    raise AssertionError(f"the device measured {measured} ms for what the host waited {passed} ms for")


def test_many_events(device: str, backend: ModuleType) -> None:
    """Hundreds of events may be pending at once, and each completes."""
    x = torch.zeros(10, device=device)
    events = []
    for _ in range(300):
        x += 1
        events.append(backend.current_stream().record_event())
    events[-1].synchronize()
    late = [number for number, event in enumerate(events) if not event.query()]
    assert not late, f"the last event is complete and those are not that came before it: {late}"
    assert_all(x, 300, "300 additions of 1")
