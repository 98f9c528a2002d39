"""A device that is full says so, and works again when memory is freed."""

import contextlib
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch_conformance import needs, routes
from torch_conformance.suite.async_._support import assert_all, keep_busy

pytestmark = needs.feature("memory statistics")

MIB = 1 << 20
ROOM = 64 * MIB


@pytest.fixture
def limited(device: str, backend: ModuleType) -> Iterator[ModuleType]:
    """The device's module, with 64 MiB more than what is in use allowed, and a little, for a fraction is rounded."""
    keep_busy(device, 0)
    backend.synchronize()
    backend.empty_cache()
    total = backend.mem_get_info()[1]
    backend.set_per_process_memory_fraction((backend.memory_reserved() + ROOM + 4096) / total)
    yield backend
    backend.set_per_process_memory_fraction(1.0)


def _block(device: str, size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


@needs.feature("memory limits")
def test_free_and_total_memory(device: str, backend: ModuleType) -> None:
    """The device's free memory is between 0 and its total, which does not change when memory is taken."""
    free, total = backend.mem_get_info()
    assert 0 < free <= total, f"{free} bytes of {total} are free"
    x = _block(device, 32 * MIB)
    assert backend.mem_get_info()[1] == total
    assert x.numel() == 32 * MIB


def test_more_than_the_device_has(device: str, backend: ModuleType) -> None:
    """A request for a petabyte raises OutOfMemoryError and leaves everything as it was."""
    x = torch.full((1000,), 4.0, device=device)
    before = backend.memory_allocated()
    for _ in range(3):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory" if routes.has("torch_backend") else None):
            _block(device, 1 << 50)
    assert backend.memory_allocated() == before
    assert_all(x, 4, "a tensor from before")
    backend.empty_cache()
    for size in (1000, 20 * MIB):
        assert_all(torch.full((size,), 5.0, device=device)[-100:], 5, "a tensor made after the device was full")


@needs.feature("memory limits")
def test_a_limit(device: str, limited: ModuleType) -> None:
    """A request beyond set_per_process_memory_fraction raises OutOfMemoryError; without the limit it is served."""
    with pytest.raises(
        torch.OutOfMemoryError, match="set_per_process_memory_fraction" if routes.has("torch_backend") else None
    ):
        _block(device, ROOM + 16 * MIB)
    limited.set_per_process_memory_fraction(1.0)
    x = _block(device, ROOM + 16 * MIB)
    x.fill_(3)
    assert_all(x[-4096:], 3, "memory beyond the former limit")


@needs.feature("memory limits")
def test_filling_up_and_going_on(device: str, limited: ModuleType) -> None:
    """When all memory is taken, freeing one block is enough for the next; no block is lost, and none is shared."""
    size = 16 * MIB  # large enough for a piece of device memory of its own
    counts = []
    for _ in range(3):
        blocks: list[Tensor] = []
        with contextlib.suppress(torch.OutOfMemoryError):
            while len(blocks) < 3 * ROOM // size:
                blocks.append(_block(device, size).fill_(len(blocks)))
        counts.append(len(blocks))
        del blocks[0]
        blocks.append(_block(device, size).fill_(99))
        for value, block in zip([*range(1, len(blocks)), 99], blocks, strict=True):
            assert_all(block[-4096:], value, "a block of a full device")
        del blocks, block
    # What was in use before may have left room for a block in its own piece of memory.
    assert counts == [counts[0]] * 3, f"filled three times, the device held {counts} blocks of 16 MiB"
    assert ROOM // size <= counts[0] < 2 * ROOM // size, f"64 MiB held {counts[0]} blocks of 16 MiB"


@needs.feature("memory limits")
def test_cached_memory_is_given_back_before_a_request_fails(device: str, limited: ModuleType) -> None:
    """Memory that is only cached does not make a request fail, whatever its block sizes are."""
    retries = limited.memory_stats()["num_alloc_retries"]
    for size in (ROOM // 2 + 2 * MIB, ROOM - 2 * MIB, 8 * MIB, ROOM - 4 * MIB):
        x = _block(device, size)
        x.fill_(1)
        del x
    if routes.has("torch_backend"):
        # Blocks of segments that grow lie in the same pages.
        is_expandable = any(segment["is_expandable"] for segment in limited.memory._snapshot()["segments"])
        assert is_expandable or limited.memory_stats()["num_alloc_retries"] > retries


@needs.feature("memory limits")
def test_a_full_device_in_the_middle_of_work(device: str, limited: ModuleType) -> None:
    """Running out of memory between enqueued operators harms none of them."""
    x = torch.full((MIB,), 2.0, device=device)
    keep_busy(device)
    y = x * 3
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(ROOM, device=device)
    z = y + 1
    assert_all(y, 6, "an operator before the device was full")
    assert_all(z, 7, "an operator after the device was full")
