"""What memory statistics and snapshots say is what is so."""

import gc
import random
import threading
from collections.abc import Mapping
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch_conformance import needs, routes
from torch_conformance.suite.async_._support import keep_busy

KIB, MIB = 1 << 10, 1 << 20

pytestmark = [needs.feature("memory statistics"), pytest.mark.usefixtures("quiet")]


@pytest.fixture
def quiet(backend: ModuleType) -> None:
    """No memory of earlier tests, in use or cached; peaks are what is in use now."""
    gc.collect()
    backend.synchronize()
    backend.empty_cache()
    backend.reset_peak_memory_stats()
    backend.reset_accumulated_memory_stats()


def _block(device: str, size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _assert_counted(counted: int, size: int) -> None:
    """As ``size`` bytes. PyTorch lets devices take more for them; torch_backend's count what tensors have."""
    good = counted == size if routes.has("torch_backend") else counted >= size
    assert good, f"{size} bytes of tensors are counted as {counted}"


def test_statistics_follow_tensors(device: str, backend: ModuleType) -> None:
    """Memory in use goes up and down with tensors; the peak stays until it is reset."""
    before = backend.memory_allocated()
    a = _block(device, 4 * KIB)
    one = backend.memory_allocated()
    _assert_counted(one - before, 4 * KIB)
    b = _block(device, 3 * MIB)
    both = backend.memory_allocated()
    _assert_counted(both - one, 3 * MIB)
    assert backend.max_memory_allocated() == both
    assert backend.memory_reserved() >= both
    del b
    assert backend.memory_allocated() == one
    assert backend.max_memory_allocated() == both
    backend.reset_peak_memory_stats()
    assert backend.max_memory_allocated() == one
    assert a.numel() == 4 * KIB


def test_views_take_nothing(device: str, backend: ModuleType) -> None:
    """Views, and operators in place, take no memory; the last view that goes gives it back."""
    before = backend.memory_allocated()
    x = torch.zeros(1024, device=device)
    taken = backend.memory_allocated()
    _assert_counted(taken - before, 4 * KIB)
    view = x.view(32, 32).t()[3:]
    x.fill_(1)
    backend.synchronize()
    assert backend.memory_allocated() == taken
    del x
    assert backend.memory_allocated() == taken
    del view
    assert backend.memory_allocated() == before


def test_empty_tensors_take_nothing(device: str, backend: ModuleType) -> None:
    """A tensor without elements has no memory."""
    before, count = backend.memory_allocated(), backend.memory_stats()["allocation.all.current"]
    empty = torch.empty(0, device=device)
    assert empty.data_ptr() == 0
    assert backend.memory_allocated() == before
    assert backend.memory_stats()["allocation.all.current"] == count


def test_emptying_the_cache(device: str, backend: ModuleType) -> None:
    """empty_cache gives the device back what is not in use, and only that."""
    before = backend.memory_reserved()
    x = _block(device, 30 * MIB)
    assert backend.memory_reserved() > before
    backend.empty_cache()  # of expandable segments the pages beyond the block go
    held, freed = backend.memory_reserved(), backend.memory_stats()["num_device_free"]
    assert held >= max(before, backend.memory_allocated()), "memory in use was given back"
    del x
    if routes.has("torch_backend"):
        assert backend.memory_reserved() == held, "freed memory was not cached"
    backend.empty_cache()
    assert backend.memory_reserved() == before, "cached memory was not given back"
    assert backend.memory_stats()["num_device_free"] == freed + 1 or not routes.has("torch_backend")


def _some_of_many(device: str) -> list[Tensor]:
    """What is left of 200 requests."""
    chance = random.Random(0)
    live: list[Tensor] = []
    for _ in range(200):
        if live and chance.random() < 0.45:
            live.pop(chance.randrange(len(live)))
        else:
            live.append(_block(device, chance.randrange(1, 2 * MIB)))
    return live


def _assert_adds_up(key: str, start: Mapping[str, int], stats: Mapping[str, int]) -> None:
    change = stats[f"{key}.allocated"] - stats[f"{key}.freed"]
    now, then = stats[f"{key}.current"], start[f"{key}.current"]
    assert now - then == change, f"{key} went from {then} to {now}, though allocated less freed is {change}"
    assert stats[f"{key}.peak"] >= now


def test_counts_add_up(device: str, backend: ModuleType) -> None:
    """Of any series of requests, what was allocated less what was freed is in use."""
    start = backend.memory_stats()
    live = _some_of_many(device)
    stats = backend.memory_stats()
    _assert_adds_up("allocated_bytes.all", start, stats)
    counted = stats["allocated_bytes.all.current"] - start["allocated_bytes.all.current"]
    assert counted >= sum(block.numel() for block in live)
    assert stats["allocated_bytes.all.current"] <= stats["active_bytes.all.current"]
    assert stats["active_bytes.all.current"] <= stats["reserved_bytes.all.current"]


@needs.feature("torch_backend")
def test_counts_of_pools_add_up(device: str, backend: ModuleType) -> None:
    """Requests, their bytes and what they asked for are counted in two pools, which together have all."""
    start = backend.memory_stats()
    live = _some_of_many(device)
    stats = backend.memory_stats()
    for name in ("allocation", "allocated_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            _assert_adds_up(f"{name}.{pool}", start, stats)
    for key in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        parts = [stats[f"{key}.{pool}_pool.current"] for pool in ("small", "large")]
        assert sum(parts) == stats[f"{key}.all.current"], f"{key} of the pools, {parts}, are not the whole"
    requested = sum(block.numel() for block in live)
    assert stats["requested_bytes.all.current"] - start["requested_bytes.all.current"] == requested


@needs.feature("torch_backend")
@needs.feature("asynchronous")
def test_memory_that_another_stream_uses_is_active(device: str, backend: ModuleType) -> None:
    """Memory that is freed while another stream uses it is not allocated, but active until that stream is done."""
    side = backend.Stream()
    keep_busy(device, 0)
    x = _block(device, 3 * MIB)
    side.wait_stream(backend.current_stream())
    before = backend.memory_stats()
    with backend.stream(side):
        keep_busy(device, 200)
        x.record_stream(side)
    del x
    after = backend.memory_stats()
    assert after["allocated_bytes.all.current"] == before["allocated_bytes.all.current"] - 3 * MIB
    assert after["active_bytes.all.current"] == before["active_bytes.all.current"]
    side.synchronize()
    _block(device, 3 * MIB)  # a request takes back what streams are done with
    done = backend.memory_stats()
    assert done["active_bytes.all.current"] == done["allocated_bytes.all.current"]


@needs.devices(2)
def test_devices_are_counted_separately(device: str, backend: ModuleType) -> None:
    """Memory of a device counts for that device alone, whichever one is current when it is freed."""
    before = backend.memory_allocated(0), backend.memory_allocated(1)
    x = _block(f"{device}:1", 4 * KIB)
    _assert_counted(backend.memory_allocated(1) - before[1], 4 * KIB)
    assert backend.memory_allocated(0) == before[0], "memory of device 1 is counted for device 0"
    del x
    assert (backend.memory_allocated(0), backend.memory_allocated(1)) == before


@needs.feature("torch_backend")
def test_a_snapshot_agrees_with_the_statistics(device: str, backend: ModuleType) -> None:
    """A snapshot's blocks fill their segments, lie side by side, and add up to what the statistics say."""
    chance = random.Random(1)
    live = [_block(device, chance.randrange(1, 3 * MIB)) for _ in range(20)]
    del live[::3]
    backend.synchronize()
    segments = [segment for segment in backend.memory_snapshot() if segment["device"] == 0]
    allocated = reserved = 0
    states: dict[int, str] = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address, f"a block is at {block['address']:#x}, and {address:#x} comes next"
            address += block["size"]
            states[block["address"]] = block["state"]
            allocated += block["size"] * (block["state"] == "active_allocated")
        assert address - segment["address"] == segment["total_size"], "the blocks of a segment do not fill it"
        reserved += segment["total_size"]
    assert reserved == backend.memory_reserved()
    assert allocated == backend.memory_allocated()
    for x in live:
        assert states.get(x.data_ptr()) == "active_allocated", f"a tensor's memory is {states.get(x.data_ptr())}"


def test_a_thread_frees_what_another_has_taken(device: str, backend: ModuleType) -> None:
    """Memory may be freed by another thread than the one that took it."""
    before = backend.memory_allocated()
    blocks = [_block(device, 100 * KIB) for _ in range(10)]
    thread = threading.Thread(target=blocks.clear)
    thread.start()
    thread.join()
    assert backend.memory_allocated() == before
