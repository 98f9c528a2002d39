"""Memory: statistics, limits, snapshots, private pools, pinned memory. Sizes are chosen to be exact after rounding."""

import gc
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fixtures import in_process
from torch.cuda import _memory_viz

KIB = 1024
MIB = 1024 * KIB

Backend = ModuleType
viewer: Any = _memory_viz  # has no types


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """No memory of earlier tests, in use or cached."""
    if "run_python" in request.fixturenames:
        yield
        return
    backend = request.getfixturevalue("backend")
    gc.collect()
    backend.synchronize()
    backend.empty_cache()
    backend.init()
    for index in range(backend.device_count()):
        backend.reset_peak_memory_stats(index)
        backend.reset_accumulated_memory_stats(index)
    yield
    backend.memory._record_memory_history(None)


def block(name: str, size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=name)


# ---- statistics ----


def test_keys_are_those_of_cuda(backend: Backend, name: str) -> None:
    _ = block(name, 1)
    stats = backend.memory_stats()
    assert list(stats) == sorted(stats)
    names = ["active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes"]
    names += ["requested_bytes", "reserved_bytes", "segment"]
    expected = {
        f"{stat}.{pool}.{metric}"
        for stat in names
        for pool in ("all", "large_pool", "small_pool")
        for metric in ("allocated", "current", "freed", "peak")
    }
    expected |= {
        f"{stat}.{metric}"
        for stat in ("oversize_allocations", "oversize_segments")
        for metric in ("allocated", "current", "freed", "peak")
    }
    expected |= {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"}
    expected |= {"num_oom_rejections", "max_split_size"}
    assert {key for key in stats if "private_pools" not in key} == expected
    assert all(isinstance(value, int) for value in stats.values())


def test_device_arguments(backend: Backend, name: str) -> None:
    _ = block(name, 4 * KIB)
    expected = backend.memory_allocated()
    for device in (None, 0, f"{name}:0", torch.device(name, 0), torch.device(name)):
        assert backend.memory_allocated(device) == expected
    with pytest.raises(ValueError, match="cpu"):
        backend.memory_allocated("cpu")
    with pytest.raises(IndexError):
        backend.memory_stats(63)


def test_summary(backend: Backend, name: str) -> None:
    _ = block(name, 4 * KIB)
    summary = backend.memory_summary()
    assert f"{name}:0" in summary
    assert "large pool" in summary
    abbreviated = backend.memory_summary(abbreviated=True)
    assert "large pool" not in abbreviated
    assert "Allocated memory" in abbreviated
    widths = {len(line) for line in abbreviated.splitlines()[4:]}
    assert len(widths) == 1, "columns line up"


@in_process({"TORCH_BACKEND": "xcpu"})
def test_statistics_do_not_start_the_driver() -> None:
    assert torch.xcpu.memory_stats() == {}
    assert torch.xcpu.memory_allocated() == torch.xcpu.max_memory_reserved() == 0
    assert torch.xcpu.memory_snapshot() == []
    assert torch.xcpu.host_memory_stats() == {}
    assert "not started" in torch.xcpu.memory_summary()
    torch.xcpu.empty_cache()
    assert not torch.xcpu.is_initialized()


# ---- limits ----


def test_fraction(backend: Backend, name: str) -> None:
    total = backend.mem_get_info()[1]
    observed: list[tuple[int, ...]] = []
    backend.memory._attach_out_of_memory_observer(lambda *values: observed.append(values))
    backend.set_per_process_memory_fraction(64 * MIB / total)
    try:
        assert backend.get_per_process_memory_fraction() == 64 * MIB / total
        with pytest.raises(torch.OutOfMemoryError, match="set_per_process_memory_fraction limits this process"):
            block(name, 80 * MIB)
        assert [values[:2] for values in observed] == [(0, 80 * MIB)]
    finally:
        backend.set_per_process_memory_fraction(1.0)
    block(name, 80 * MIB)
    with pytest.raises(TypeError, match="float"):
        backend.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        backend.set_per_process_memory_fraction(1.5)


def test_raw_allocations(backend: Backend) -> None:
    before = backend.memory_allocated()
    address = backend.caching_allocator_alloc(4 * KIB)
    assert address != 0
    assert backend.memory_allocated() == before + 4 * KIB
    backend.caching_allocator_delete(address)
    assert backend.memory_allocated() == before
    stream = backend.Stream()
    backend.caching_allocator_delete(backend.caching_allocator_alloc(4 * KIB, stream=stream))
    assert backend.get_allocator_backend() == "torch_backend"


@in_process({"TORCH_BACKEND": "xcpu", "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4,max_split_size_mb:64"})
def test_settings_take_effect() -> None:
    kept = [block("xcpu", 5 * MIB)]
    assert torch.xcpu.memory_allocated() == 5 * MIB
    kept.append(block("xcpu", 4 * MIB + 1))
    assert torch.xcpu.memory_allocated() == 10 * MIB
    stats = torch.xcpu.memory_stats()
    assert stats["requested_bytes.all.current"] == 9 * MIB + 1
    assert stats["max_split_size"] == 64 * MIB


# ---- snapshots and history ----


def allocate_here(name: str, size: int) -> torch.Tensor:
    return block(name, size)


def traces(backend: Backend) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = backend.memory._snapshot()["device_traces"][0]
    return entries


def test_snapshot_shows_blocks_and_where_they_are_from(backend: Backend, name: str) -> None:
    backend.memory._record_memory_history(stacks="python")
    a = allocate_here(name, 5 * MIB)
    snapshot = backend.memory._snapshot()
    blocks = {block["address"]: block for segment in snapshot["segments"] for block in segment["blocks"]}
    found = blocks[a.data_ptr()]
    assert (found["size"], found["requested_size"], found["state"]) == (5 * MIB, 5 * MIB, "active_allocated")
    assert "allocate_here" in [frame["name"] for frame in found["frames"]]
    for segment in snapshot["segments"]:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
        assert segment["segment_type"] in ("small", "large")
    assert len(snapshot["device_traces"]) == backend.device_count()
    assert "PYTORCH_ALLOC_CONF" in snapshot["allocator_settings"]
    assert backend.memory_snapshot() == backend.memory._snapshot()["segments"]


def test_history_tells_what_happened(backend: Backend, name: str) -> None:
    backend.memory._record_memory_history(max_entries=100)
    a = allocate_here(name, 30 * MIB)
    address = a.data_ptr()
    del a
    backend.empty_cache()
    entries = [entry for entry in traces(backend) if entry.get("addr") == address]
    actions = [entry["action"] for entry in entries]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    assert {entry["size"] for entry in entries} == {30 * MIB}
    assert any("allocate_here" in frame["name"] for frame in entries[1]["frames"])
    assert entries[0]["time_us"] <= entries[-1]["time_us"]


def test_history_options(backend: Backend, name: str) -> None:
    record = backend.memory._record_memory_history
    record(max_entries=3, context=None, skip_actions=["free_completed"])
    for _ in range(5):
        block(name, 4 * KIB)
    assert [entry["action"] for entry in traces(backend)] == ["alloc", "free_requested", "snapshot"]
    assert all(entry["frames"] == [] for entry in traces(backend))
    record("state", clear_history=True)
    a = allocate_here(name, 4 * KIB)
    assert len(traces(backend)) <= 1
    assert any(block["frames"] for segment in backend.memory_snapshot() for block in segment["blocks"])
    del a
    record(None)
    assert traces(backend) == []
    for arguments in ({"enabled": "some"}, {"context": "none"}, {"stacks": "c"}, {"skip_actions": ["allocate"]}):
        with pytest.raises(ValueError, match=r"must be|not an action"):
            record(**arguments)


def test_out_of_memory_is_in_the_history(backend: Backend, name: str) -> None:
    backend.memory._record_memory_history(context=None)
    with pytest.raises(torch.OutOfMemoryError):
        block(name, 1 << 55)
    entry = next(entry for entry in traces(backend) if entry["action"] == "oom")
    assert entry["size"] == 1 << 55
    assert entry["device_free"] > 0


@pytest.fixture
def dumped(backend: Backend, name: str, tmp_path: Path) -> Path:
    """A snapshot file with something of everything."""
    backend.memory._record_memory_history()
    kept = [allocate_here(name, size) for size in (512, 3 * MIB, 30 * MIB)]
    del kept[1]
    path = tmp_path / "snapshot.pickle"
    backend.memory._dump_snapshot(str(path))
    return path


def test_the_viewer_reads_snapshots(dumped: Path) -> None:
    snapshot = pickle.loads(dumped.read_bytes())
    lines = viewer.segments(snapshot, format_flamegraph=str)
    assert "allocate_here" in lines
    assert "inactive" in viewer.memory(snapshot, format_flamegraph=str)
    assert "MemoryViz.js" in viewer.trace_plot(snapshot)
    assert "MemoryViz.js" in viewer.segment_plot(snapshot)
    assert "total_reserved" in viewer.segsum(snapshot)
    assert "cudaMalloc" in viewer.trace(snapshot)


def test_the_profiler_sees_memory(name: str) -> None:
    with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        a = block(name, 5 * MIB)
        del a
    memory = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = {event.nbytes() for event in memory}
    assert {5 * MIB, -5 * MIB} <= sizes
    assert "MemoryViz.js" in viewer.profile_plot(profile)


# ---- private pools ----


# PyTorch's own structure for statistics, which torch 2.11 has without it.
TORCH_STATISTICS = Path(torch.__file__).parent / "include" / "c10" / "core" / "CachingDeviceAllocator.h"
TORCH_COUNTS_POOLS = "reserved_bytes_by_private_pools" in TORCH_STATISTICS.read_text(encoding="utf-8")


def test_a_pool_keeps_its_memory(backend: Backend, name: str) -> None:
    pool = backend.MemPool()
    assert pool.use_count() == 1
    outside = block(name, 4 * KIB)
    with backend.use_mem_pool(pool):
        assert pool.use_count() == 2
        a = block(name, 4 * KIB)
        address = a.data_ptr()
    assert {segment["segment_pool_id"] for segment in pool.snapshot()} == {pool.id}
    counted = f"reserved_bytes_by_private_pools.{pool.id[0]}_{pool.id[1]}.all.current"
    assert backend.memory_stats().get(counted) == (2 * MIB if TORCH_COUNTS_POOLS else None)
    del a
    b = block(name, 4 * KIB)
    assert b.data_ptr() != address
    with backend.use_mem_pool(pool):
        assert block(name, 4 * KIB).data_ptr() == address
    reserved = backend.memory_reserved()
    backend.empty_cache()
    assert len(pool.snapshot()) == 1
    del pool
    assert backend.memory_reserved() == reserved - 2 * MIB
    assert outside.numel() == b.numel()


def test_pool_memory_may_outlive_the_pool(backend: Backend, name: str) -> None:
    pool = backend.MemPool()
    with backend.use_mem_pool(pool):
        a = block(name, 30 * MIB)
    del pool
    a.fill_(3)
    assert a[-1].item() == 3
    reserved = backend.memory_reserved()
    del a
    backend.empty_cache()
    assert backend.memory_reserved() <= reserved - 30 * MIB


def test_a_pool_is_for_one_thread(backend: Backend, name: str) -> None:
    pool = backend.MemPool()
    others: list[torch.Tensor] = []
    with backend.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: others.append(block(name, 4 * KIB)))
        thread.start()
        thread.join()
    assert pool.snapshot() == []
    assert others[0].numel() == 4 * KIB


def test_the_pool_ends_with_an_exception(backend: Backend, name: str) -> None:
    pool = backend.MemPool()
    with pytest.raises(KeyError), backend.use_mem_pool(pool):
        raise KeyError
    _ = block(name, 4 * KIB)
    assert pool.snapshot() == []
    assert pool.use_count() == 1


# ---- pinned host memory ----


def test_pinned_memory(backend: Backend, name: str) -> None:
    backend.empty_host_cache()
    before = backend.host_memory_stats()["active_bytes.current"]
    pinned = torch.arange(1000.0, pin_memory=True)
    assert pinned.is_pinned()
    assert pinned[10:20].is_pinned(), "any part of it"
    assert not torch.arange(3).is_pinned()
    stats = backend.host_memory_stats()
    assert stats["active_bytes.current"] == before + 4 * KIB
    assert stats["host_alloc_time.count"] >= 1
    copy = pinned.to(name, non_blocking=True)
    back = torch.empty(1000, pin_memory=True).copy_(copy, non_blocking=True)
    backend.synchronize()
    assert torch.equal(back, pinned)
    del pinned, back
    backend.empty_host_cache()
    assert backend.host_memory_stats()["allocated_bytes.current"] <= 4 * KIB
    backend.reset_peak_host_memory_stats()
    backend.reset_accumulated_host_memory_stats()
    assert backend.host_memory_stats()["allocations.allocated"] == 0


@in_process({"TORCH_BACKEND": "fake"})
def test_devices_without_pinned_memory_pretend() -> None:
    a = torch.arange(10.0, pin_memory=True)
    assert a.is_pinned()
    assert torch.equal(a.to("fake", non_blocking=True).cpu(), a)
    del a
    torch.fake.empty_host_cache()
    assert torch.fake.host_memory_stats()["allocated_bytes.current"] == 0
