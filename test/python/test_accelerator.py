"""torch.accelerator, which PyTorch builds on what we register."""

from types import ModuleType

import pytest
import torch

accelerator = torch.accelerator


def test_identity(backend: ModuleType, name: str) -> None:
    assert accelerator.current_accelerator() == torch.device(name)
    assert accelerator.current_accelerator(check_available=True) == torch.device(name)
    assert accelerator.is_available()
    assert accelerator.device_count() == backend.device_count()
    assert torch.get_device_module() is backend
    assert torch._C._get_accelerator() == torch.device(name)


@pytest.mark.usefixtures("two_devices")
def test_device_index(backend: ModuleType, name: str) -> None:
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == backend.current_device() == 1
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == 0
    try:
        accelerator.set_device_index(f"{name}:1")
        assert backend.current_device() == 1
    finally:
        accelerator.set_device_index(0)


def test_device_that_does_not_exist() -> None:
    for use in (accelerator.set_device_index, accelerator.synchronize, accelerator.current_stream):
        with pytest.raises((IndexError, RuntimeError)):
            use(63)


def test_streams(backend: ModuleType) -> None:
    stream = torch.Stream()
    before = accelerator.current_stream()
    assert before == backend.default_stream()
    accelerator.set_stream(stream)
    try:
        assert backend.current_stream() == stream
    finally:
        accelerator.set_stream(before)
    accelerator.synchronize()


@pytest.mark.usefixtures("two_devices")
def test_set_stream_changes_the_device(backend: ModuleType, name: str) -> None:
    before = accelerator.current_stream(1)
    accelerator.set_stream(torch.Stream(f"{name}:1"))
    try:
        assert backend.current_device() == 1
    finally:
        accelerator.set_stream(before)
        accelerator.set_device_index(0)


def test_capability(backend: ModuleType, name: str) -> None:
    supported = accelerator.get_device_capability(name)["supported_dtypes"]
    assert torch.float32 in supported
    assert set(supported) <= set(backend.get_device_properties().dtypes)


def test_memory(name: str) -> None:
    accelerator.empty_cache()
    before = accelerator.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device=name)
    assert accelerator.memory_allocated() - before >= 1 << 20
    assert accelerator.memory_reserved() >= accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats()
    peak = accelerator.max_memory_allocated()
    assert peak >= 1 << 20
    assert accelerator.max_memory_reserved() >= peak
    assert accelerator.memory_stats()["allocated_bytes.all.current"] == accelerator.memory_allocated()
    del x
    assert accelerator.memory_allocated() == before
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_memory_info() -> None:
    if not hasattr(accelerator, "get_memory_info"):
        pytest.skip("not in this torch")
    free, total = accelerator.get_memory_info()
    assert 0 <= free <= total


def test_empty_host_cache() -> None:
    if not hasattr(accelerator, "empty_host_cache"):
        pytest.skip("not in this torch")
    accelerator.empty_host_cache()


def test_random_module(backend: ModuleType) -> None:
    random = getattr(accelerator, "random", None)
    if random is None:
        pytest.skip("not in this torch")
    assert random.initial_seed() == backend.initial_seed()
    assert torch.equal(random.get_rng_state(), backend.get_rng_state())


def test_generic_event() -> None:
    start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
