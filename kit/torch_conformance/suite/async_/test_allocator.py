"""Memory is used again when it is safe, and not before: every block has one owner at a time.

That it is kept and used again at once, and where, is what torch_backend promises.
"""

import gc
import random
import threading
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch_conformance import needs, routes
from torch_conformance.suite.async_._support import assert_all, is_asynchronous, keep_busy, pinned
from torch_conformance.threads import in_threads

pytestmark = needs.feature("streams")

COUNT = 60_000  # elements: a size that nothing else here uses


@needs.feature("torch_backend")
def test_memory_is_used_again(device: str) -> None:
    """Freed memory serves the next request of its size."""
    x = torch.empty(COUNT, device=device)
    pointer = x.data_ptr()
    del x
    assert torch.empty(COUNT, device=device).data_ptr() == pointer, "freed memory was not used for a request as large"


def test_memory_returns_to_its_own_stream_at_once(device: str) -> None:
    """Memory freed while its stream still uses it serves that stream's next request, whose work comes after."""
    x = torch.zeros(COUNT, device=device)
    pointer = x.data_ptr()
    keep_busy(device)
    x.copy_(pinned(torch.ones(COUNT)), non_blocking=True)
    y = x + 1
    del x
    again = torch.full((COUNT,), 5.0, device=device)
    assert again.data_ptr() == pointer or not routes.has("torch_backend")
    assert_all(y, 2, "what was computed from memory before it was used again")
    assert_all(again, 5, "memory that was used again")


def test_memory_of_a_side_stream_stays_there(device: str, backend: ModuleType) -> None:
    """Memory that a side stream freed is not handed to another stream, which would not wait for it."""
    side = backend.Stream()
    with backend.stream(side):
        x = torch.empty(COUNT, device=device)
        pointer = x.data_ptr()
        keep_busy(device)
        x.copy_(pinned(torch.ones(COUNT)), non_blocking=True)
    del x
    on_default = torch.full((COUNT,), 3.0, device=device)
    with backend.stream(side):
        on_side = torch.empty(COUNT, device=device)
    if routes.has("torch_backend") and is_asynchronous():
        assert on_default.data_ptr() != pointer, "the default stream was given memory that a side stream still writes"
        assert on_side.data_ptr() == pointer, "a side stream was not given the memory that it had freed"
    side.synchronize()
    assert_all(on_default, 3, "a fill on the default stream")


def test_record_stream(device: str, backend: ModuleType) -> None:
    """Memory that another stream was recorded to use is not used again before that stream has."""
    side = backend.Stream()
    source = torch.full((COUNT,), 2.0, device=device)
    pointer = source.data_ptr()
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        keep_busy(device)
        y = source * 3
        source.record_stream(side)
    del source
    others = [torch.full((COUNT,), 9.0, device=device) for _ in range(3)]
    side.synchronize()
    assert_all(y, 6, "a side stream's input, recorded with record_stream, was overwritten before it was read")
    del others
    if routes.has("torch_backend"):
        backend.synchronize()
        again = [torch.empty(COUNT, device=device) for _ in range(8)]
        assert pointer in {x.data_ptr() for x in again}, "memory that was recorded to another stream never came back"


def test_record_stream_of_many(device: str, backend: ModuleType) -> None:
    """Memory that several streams use is kept until the last of them has."""
    streams = [backend.Stream() for _ in range(4)]
    source = torch.full((COUNT,), 2.0, device=device)
    results = []
    for number, stream in enumerate(streams):
        stream.wait_stream(backend.current_stream())
        with backend.stream(stream):
            keep_busy(device, 5 * number)
            results.append(source + number)
            source.record_stream(stream)
    del source
    streams[0].synchronize()
    others = [torch.full((COUNT,), 9.0, device=device) for _ in range(3)]
    for number, (stream, result) in enumerate(zip(streams, results, strict=True)):
        stream.synchronize()
        assert_all(result, 2 + number, f"what stream {number} read from memory that four streams used")
    del others


def test_record_stream_of_a_part(device: str, backend: ModuleType) -> None:
    """record_stream on a view keeps all of the memory that it views."""
    side = backend.Stream()
    source = torch.full((COUNT,), 2.0, device=device)
    view = source[COUNT // 2 :]
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        keep_busy(device)
        y = view * 3
        view.record_stream(side)
    del source, view
    others = [torch.full((COUNT,), 9.0, device=device) for _ in range(2)]
    side.synchronize()
    assert_all(y, 6, "a side stream's input, recorded through a view, was overwritten before it was read")
    del others


@needs.feature("memory limits")
@needs.feature("memory statistics")
def test_a_request_waits_for_memory_in_use_by_another_stream(device: str, backend: ModuleType) -> None:
    """When memory is short, a request waits for what another stream still uses rather than failing."""
    size = 48 << 20
    backend.synchronize()
    backend.empty_cache()
    side = backend.Stream()
    keep_busy(device, 0)
    allowed = backend.memory_reserved() + size + size // 2
    backend.set_per_process_memory_fraction(allowed / backend.mem_get_info()[1])
    try:
        for _ in range(3):
            x = torch.empty(size, dtype=torch.uint8, device=device)
            side.wait_stream(backend.current_stream())
            with backend.stream(side):
                x.fill_(7)
                keep_busy(device, 20)
                x.record_stream(side)
            del x
            # There is no room for a second one.
            y = torch.empty(size, dtype=torch.uint8, device=device)
            y.fill_(1)
            side.synchronize()
            assert_all(y[-4096:], 1, "memory was written by the stream that had used it before")
            del y
    finally:
        backend.set_per_process_memory_fraction(1.0)


class _Ledger:
    """Which addresses are in use. One that is handed out twice is an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[int, int] = {}

    def add(self, tensor: Tensor) -> None:
        begin = tensor.data_ptr()
        end = begin + tensor.untyped_storage().nbytes()
        with self._lock:
            for other, other_end in self._live.items():
                assert end <= other or begin >= other_end, (
                    f"{begin:#x}..{end:#x} was handed out while {other:#x}..{other_end:#x} is in use"
                )
            self._live[begin] = end

    def remove(self, tensor: Tensor) -> None:
        with self._lock:
            del self._live[tensor.data_ptr()]


class _Stress:
    """One thread's work: it makes, checks, hands over and frees tensors of random sizes on streams of its own."""

    def __init__(self, device: str, backend: ModuleType, seed: int, ledger: _Ledger) -> None:
        self.backend = backend
        self.device = device
        self.chance = random.Random(seed)
        self.tag = seed << 16
        self.ledger = ledger
        self.streams = [self.backend.Stream() for _ in range(3)]
        # How many elements were not what they should be. A sum per stream: nothing orders the streams.
        self.errors = []
        for stream in self.streams:
            with self.backend.stream(stream):
                self.errors.append(torch.zeros((), dtype=torch.int64, device=device))
        self.live: list[tuple[Tensor, int, int]] = []  # with the value that fills it, and the number of its stream

    def run(self, steps: int) -> None:
        for _ in range(steps):
            action = self.chance.choice((self.make, self.make, self.check, self.hand_over, self.free))
            if action == self.make or self.live:
                action()
            if len(self.live) > 24:
                self.free()
        while self.live:
            self.free()
        for stream, errors in zip(self.streams, self.errors, strict=True):
            stream.synchronize()
            assert errors.item() == 0, f"{errors.item()} elements were overwritten while their tensor was in use"

    def make(self) -> None:
        number = self.chance.randrange(len(self.streams))
        self.tag += 1
        size = self.chance.choice((1, 100, 1000, self.chance.randrange(1, 300_000)))
        with self.backend.stream(self.streams[number]):
            x = torch.empty(size, dtype=torch.int32, device=self.device)
            self.ledger.add(x)
            x.fill_(self.tag)
        self.live.append((x, self.tag, number))

    def check(self) -> None:
        x, value, number = self.chance.choice(self.live)
        self.count(x, value, number)

    def count(self, x: Tensor, value: int, number: int) -> None:
        with self.backend.stream(self.streams[number]):
            self.errors[number] += (x != value).sum()

    def hand_over(self) -> None:
        """Another stream reads the tensor after its own has written it."""
        x, value, number = self.chance.choice(self.live)
        other = self.chance.randrange(len(self.streams))
        self.streams[other].wait_stream(self.streams[number])
        self.count(x, value, other)
        x.record_stream(self.streams[other])

    def free(self) -> None:
        x, value, number = self.live.pop(self.chance.randrange(len(self.live)))
        self.count(x, value, number)
        self.ledger.remove(x)


STRESS = [
    pytest.param(3, 60, id="short"),
    pytest.param(8, 1500, id="long", marks=pytest.mark.thorough),
]


@needs.feature("memory statistics")
@pytest.mark.parametrize(("threads", "steps"), STRESS)
def test_many_threads_and_streams(device: str, backend: ModuleType, threads: int, steps: int) -> None:
    """Tensors of random sizes, made and freed by many threads on many streams, keep what was written to them."""
    gc.collect()  # so that what earlier tests left does not go in between
    before = backend.memory_allocated()
    ledger = _Ledger()
    in_threads([lambda seed=seed: _Stress(device, backend, seed, ledger).run(steps) for seed in range(1, threads + 1)])
    backend.synchronize()
    left = backend.memory_allocated() - before
    assert left == 0, f"{left} bytes are still in use when all threads are done"


@pytest.mark.parametrize(("threads", "steps"), STRESS)
def test_emptying_the_cache_under_load(device: str, backend: ModuleType, threads: int, steps: int) -> None:
    """Cached memory can be given back to the device at any time, while other threads make and use tensors."""
    ledger, done = _Ledger(), threading.Event()

    def empty() -> None:
        while not done.is_set():
            backend.empty_cache()
            done.wait(0.002)

    def work(seed: int) -> None:
        try:
            _Stress(device, backend, seed, ledger).run(steps)
        finally:
            done.set()

    in_threads([empty, *(lambda seed=seed: work(seed) for seed in range(1, threads))])
    x = torch.full((1000,), 2.0, device=device)
    assert_all(x, 2, "a tensor made afterwards")


def test_emptying_the_cache_while_memory_is_in_use(device: str, backend: ModuleType) -> None:
    """empty_cache gives back nothing that work still waiting on a stream will read or write."""
    side = backend.Stream()
    x = torch.full((COUNT,), 2.0, device=device)
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        keep_busy(device)
        y = x * 3
        x.record_stream(side)
    del x
    keep_busy(device)
    torch.full((COUNT,), 1.0, device=device)
    backend.empty_cache()
    fresh = [torch.full((COUNT,), 9.0, device=device) for _ in range(3)]
    side.synchronize()
    assert_all(y, 6, "what a side stream computed from memory that was freed and recorded")
    for z in fresh:
        assert_all(z, 9, "memory taken after the cache was emptied")
