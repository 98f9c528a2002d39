"""Several streams: which is the current one, and how one waits for another."""

import gc
from types import ModuleType

import pytest
import torch
from torch_conformance import needs
from torch_conformance.accelerator import is_same_stream
from torch_conformance.suite.async_._support import (
    ATTEMPTS,
    assert_all,
    assert_idle,
    attempts_beside_work,
    keep_busy,
    pinned,
)
from torch_conformance.threads import in_threads

pytestmark = needs.feature("streams")


def test_the_default_stream(backend: ModuleType) -> None:
    """The default stream is the current one at first, is no other stream, and has priority 0."""
    default = backend.default_stream()
    assert backend.current_stream() == default
    assert default != backend.Stream()
    assert default.priority == 0
    default.synchronize()
    assert_idle(default, "after synchronize()")


@needs.feature("torch_backend")
def test_priorities(device: str, backend: ModuleType) -> None:
    """Streams of every priority in the device's range work; beyond the range the nearest one is taken."""
    lowest, highest = backend.Stream.priority_range()
    assert highest <= 0 <= lowest, f"priorities go from {lowest} to {highest}, without 0 between them"
    assert backend.Stream(priority=lowest + 100).priority == lowest
    assert backend.Stream(priority=highest - 100).priority == highest
    for priority in range(highest, lowest + 1):
        stream = backend.Stream(priority=priority)
        assert stream.priority == priority
        with backend.stream(stream):
            x = torch.full((100,), 3.0, device=device)
        stream.synchronize()
        assert_all(x, 3, f"a fill on a stream of priority {priority}")


def test_stream_contexts(backend: ModuleType) -> None:
    """A with statement makes a stream the current one until it ends, also when nested, and also after an error."""
    before, stream = backend.current_stream(), backend.Stream()
    with backend.stream(stream):
        assert backend.current_stream() == stream
        assert is_same_stream(stream, torch.accelerator.current_stream())
        with backend.stream(None):
            assert backend.current_stream() == stream
        with backend.stream(backend.Stream()):
            assert backend.current_stream() != stream
        assert backend.current_stream() == stream
    assert backend.current_stream() == before
    with stream:  # torch.Stream is a context manager, too
        assert backend.current_stream() == stream
    with pytest.raises(KeyError), backend.stream(stream):
        raise KeyError
    assert backend.current_stream() == before


def test_the_current_stream_belongs_to_the_thread(backend: ModuleType) -> None:
    """A thread starts on the default stream, whatever is current in the others, and changes only its own."""
    seen = []

    def work() -> None:
        seen.append(backend.current_stream())
        backend.set_stream(backend.Stream())

    with backend.stream(backend.Stream()):
        mine = backend.current_stream()
        in_threads([work])
        assert backend.current_stream() == mine
    assert seen == [backend.default_stream()]


def test_streams_are_used_again(device: str, backend: ModuleType) -> None:
    """Any number of streams can be asked for, and each works."""
    results = []
    for number in range(200):
        with backend.stream(backend.Stream()):
            results.append(torch.full((10,), float(number), device=device))
    backend.synchronize()
    for number, result in enumerate(results):
        assert_all(result, number, f"a fill on stream {number}")


def test_a_stream_may_go_away(device: str, backend: ModuleType) -> None:
    """Work on a stream is done though nobody holds the stream any more."""
    back = pinned(torch.zeros(1000))
    stream = backend.Stream()
    with backend.stream(stream):
        x = torch.full((1000,), 5.0, device=device)
        keep_busy(device)
        back.copy_(x, non_blocking=True)
    del stream
    gc.collect()
    backend.synchronize()
    assert_all(back, 5, "a copy on a stream that nobody holds")


@needs.feature("asynchronous")
def test_streams_do_not_wait_for_each_other(device: str, backend: ModuleType) -> None:
    """Work on an idle stream is done while another stream is still busy."""
    busy, idle = backend.Stream(), backend.Stream()
    backend.synchronize()
    for event in attempts_beside_work(device, busy):
        with backend.stream(idle):
            y = torch.full((1000,), 2.0, device=device)
        idle.synchronize()
        overtook = not event.query()
        assert_all(y, 2, "a fill on the idle stream")
        if overtook:
            return
    raise AssertionError(f"a fill on an idle stream came after the copies on another one each of {ATTEMPTS} times")


@pytest.mark.parametrize("wait", ["wait_event", "wait_stream", "event.wait", "torch.Event"])
def test_waiting_for_another_stream(device: str, backend: ModuleType, wait: str) -> None:
    """A stream that waits for another sees what that one had been given before."""
    producer, consumer = backend.Stream(), backend.Stream()
    source = pinned(torch.arange(1000.0))
    for number in range(3):
        with backend.stream(producer):
            x = torch.zeros(1000, device=device) - number
            keep_busy(device)
            x.copy_(source, non_blocking=True)
        if wait == "wait_event":
            consumer.wait_event(producer.record_event())
        elif wait == "wait_stream":
            consumer.wait_stream(producer)
        elif wait == "event.wait":
            event = producer.record_event()
            with backend.stream(consumer):
                event.wait()
        else:
            event = torch.Event(device)
            event.record(producer)
            event.wait(consumer)
        with backend.stream(consumer):
            y = x * 2
        consumer.synchronize()
        assert torch.equal(y.cpu(), source * 2), f"round {number}: a stream did not wait for another one"


@needs.feature("asynchronous")
def test_waiting_does_not_block_the_host(device: str, backend: ModuleType) -> None:
    """Telling one stream to wait for another returns while that other is still busy."""
    producer, consumer = backend.Stream(), backend.Stream()
    for milliseconds in (50, 200, 800):  # more, if the host was held up for longer
        with backend.stream(producer):
            keep_busy(device, milliseconds)
        event = producer.record_event()
        consumer.wait_event(event)
        busy = not event.query()
        producer.synchronize()
        if busy:
            return
    raise AssertionError("wait_event returned only after 800 ms of copies on the stream that was waited for")


def test_streams_wait_in_turns(device: str, backend: ModuleType) -> None:
    """Two streams that wait for each other in turns change a tensor in that order."""
    first, second = backend.Stream(), backend.Stream()
    x = torch.zeros(1000, device=device)
    first.wait_stream(backend.current_stream())
    with backend.stream(first):
        keep_busy(device)
        x.copy_(pinned(torch.ones(1000)), non_blocking=True)
    second.wait_stream(first)
    with backend.stream(second):
        x *= 5
        keep_busy(device)
        x.copy_(x + 1, non_blocking=True)
    first.wait_stream(second)
    with backend.stream(first):
        x += 2
    first.synchronize()
    assert_all(x, 8, "1 * 5 + 1 + 2 on two streams that wait for each other in turns")


def test_work_goes_around(device: str, backend: ModuleType) -> None:
    """A tensor that three streams change in turns, each waiting for the one before, is changed in that order."""
    streams = [backend.Stream() for _ in range(3)]
    x = torch.zeros(100, device=device)
    before, expected = backend.current_stream(), 0
    for number in range(12):
        stream = streams[number % 3]
        stream.wait_stream(before)
        with backend.stream(stream):
            y = x + (1 if number % 2 else x)
            keep_busy(device, 2)
            x.copy_(y, non_blocking=True)
        expected += 1 if number % 2 else expected
        before = stream
    before.synchronize()
    assert_all(x, expected, "a tensor that three streams changed in turns")


def test_a_tree_of_streams(device: str, backend: ModuleType) -> None:
    """Work that fans out to many streams and comes together again has all of its parts."""
    streams = [backend.Stream() for _ in range(6)]
    x = torch.zeros(1000, device=device)
    main = backend.current_stream()
    keep_busy(device)
    x.copy_(pinned(torch.ones(1000)), non_blocking=True)
    parts = []
    for number, stream in enumerate(streams):
        stream.wait_stream(main)
        with backend.stream(stream):
            keep_busy(device, number)
            parts.append(x * (number + 1))
    for stream in streams:
        main.wait_stream(stream)
    assert_all(torch.stack(parts).sum(0), 21, "the sum of what six streams computed")


def test_synchronizing_the_device_waits_for_every_stream(device: str, backend: ModuleType) -> None:
    """After the device's synchronize() the work on all of its streams is done."""
    streams = [backend.Stream() for _ in range(4)]
    backs = [pinned(torch.zeros(1000)) for _ in streams]
    for stream, back in zip(streams, backs, strict=True):
        with backend.stream(stream):
            x = torch.full((1000,), 3.0, device=device)
            keep_busy(device)
            back.copy_(x, non_blocking=True)
    backend.synchronize()
    for number, (stream, back) in enumerate(zip(streams, backs, strict=True)):
        assert_all(back, 3, f"synchronize() returned before the work on stream {number} was done")
        assert_idle(stream, "after the device's synchronize()")


def test_the_default_stream_waits_like_any_other(device: str, backend: ModuleType) -> None:
    """The default stream and a side stream hand a tensor to each other and back."""
    default, side = backend.default_stream(), backend.Stream()
    x = torch.zeros(1000, device=device)
    keep_busy(device)
    x.copy_(pinned(torch.full((1000,), 3.0)), non_blocking=True)
    side.wait_stream(default)
    with backend.stream(side):
        y = x * 2
        keep_busy(device)
        x.copy_(y, non_blocking=True)
    default.wait_stream(side)
    assert_all(x + 1, 7, "3 * 2 on a side stream, + 1 on the default one")
