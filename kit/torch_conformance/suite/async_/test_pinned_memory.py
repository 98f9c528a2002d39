"""Page-locked host memory is not used again before the device has read or written it."""

import random
from types import ModuleType

import torch
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, keep_busy, pinned

pytestmark = needs.feature("pinned memory")

COUNT = 123_457


def test_freed_sources_are_not_overwritten(device: str) -> None:
    """A pinned tensor may be freed, and others made, while a copy from it is still waiting."""
    x = torch.zeros(10, 1000, device=device)
    keep_busy(device)
    for number, row in enumerate(x):
        source = pinned(torch.full((1000,), float(number)))
        row.copy_(source, non_blocking=True)
        del source
    for number, row in enumerate(x):
        assert_all(row, number, f"copy {number} read memory that later copies had taken over")


def test_freed_destinations_are_not_handed_out(device: str, backend: ModuleType) -> None:
    """A pinned tensor that is freed while a copy into it is waiting is not handed out before that copy is done."""
    x = torch.full((COUNT,), 5.0, device=device)
    keep_busy(device)
    torch.zeros(COUNT, pin_memory=True).copy_(x, non_blocking=True)
    others = [torch.zeros(COUNT, pin_memory=True) for _ in range(3)]
    backend.synchronize()
    for other in others:
        assert_all(other, 0, "a copy to the host was written into memory that had been handed out again")


def test_parts_of_a_buffer_keep_it(device: str) -> None:
    """A copy from a part of a pinned tensor keeps all of it from being used again too early."""
    x = torch.zeros(100, device=device)
    keep_busy(device)
    source = pinned(torch.arange(COUNT, dtype=torch.float32))
    x.copy_(source[-100:], non_blocking=True)
    del source
    others = [torch.full((COUNT,), -1.0, pin_memory=True) for _ in range(2)]
    assert torch.equal(x.cpu(), torch.arange(COUNT - 100.0, COUNT)), "a copy read memory that had been handed out again"
    assert len(others) == 2


@needs.feature("streams")
def test_copies_on_side_streams(device: str, backend: ModuleType) -> None:
    """A copy from pinned memory on a side stream protects the memory as one on the default stream does."""
    side = backend.Stream()
    x = torch.zeros(8, COUNT, device=device)
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        keep_busy(device)
        for number, row in enumerate(x):
            row.copy_(pinned(torch.full((COUNT,), float(number))), non_blocking=True)
    side.synchronize()
    for number, row in enumerate(x):
        assert_all(row, number, f"copy {number} on the side stream")


@needs.feature("streams")
def test_a_buffer_that_two_streams_read(device: str, backend: ModuleType) -> None:
    """Pinned memory that two streams read is kept until both have."""
    streams = [backend.Stream() for _ in range(2)]
    results = []
    source = pinned(torch.full((COUNT,), 4.0))
    for milliseconds, stream in zip((1, 20), streams, strict=True):
        with backend.stream(stream):
            keep_busy(device, milliseconds)
            results.append(source.to(device, non_blocking=True))
    del source
    streams[0].synchronize()
    other = torch.full((COUNT,), -1.0, pin_memory=True)
    for stream, result in zip(streams, results, strict=True):
        stream.synchronize()
        assert_all(result, 4, "one of two streams read memory that had been handed out again")
    del other


@needs.feature("torch_backend")
def test_buffers_are_used_again_in_the_end(device: str, backend: ModuleType) -> None:
    """When the device is done with a freed pinned tensor, its memory is used for the next one of that size."""
    source = pinned(torch.zeros(COUNT))
    pointer = source.data_ptr()
    x = source.to(device, non_blocking=True)
    del source
    backend.synchronize()
    assert_all(x, 0, "a copy of zeros")
    others = [pinned(torch.zeros(COUNT)) for _ in range(8)]
    assert pointer in {other.data_ptr() for other in others}, "pinned memory was not used again after the copy"


def test_round_trips_of_many_sizes(device: str, backend: ModuleType) -> None:
    """Pinned buffers of many sizes, used over and over in both directions, bring every byte where it belongs."""
    chance = random.Random(0)
    for round_number in range(6):
        waiting = []
        for number in range(12):
            value, size = (round_number * 12 + number) % 251, chance.randrange(1, 200_000)
            x = pinned(torch.full((size,), value, dtype=torch.uint8)).to(device, non_blocking=True)
            back = torch.zeros(size, dtype=torch.uint8, pin_memory=True).copy_(x, non_blocking=True)
            waiting.append((value, back))
        backend.synchronize()
        for value, back in waiting:
            assert_all(back, value, f"{back.numel()} bytes that went to the device and back")
