"""torch.accelerator, which knows the device by no name."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.accelerator import is_same_stream
from torch_conformance.routes import has
from torch_conformance.suite.tensor._random import keep_states as keep_states

accelerator = torch.accelerator

pytestmark = needs.feature("accelerator")


def test_identity(device: str, backend: ModuleType) -> None:
    """torch.accelerator finds the device, and as many of it as torch.<name>."""
    assert accelerator.current_accelerator() == torch.device(device), (
        f"torch.accelerator finds {accelerator.current_accelerator()}, not {device}"
    )
    assert accelerator.current_accelerator(check_available=True) == torch.device(device)
    assert accelerator.is_available(), "torch.accelerator says that there is no device"
    assert accelerator.device_count() == backend.device_count(), (
        f"torch.accelerator counts {accelerator.device_count()} devices, torch.{device} {backend.device_count()}"
    )
    assert backend == torch.get_device_module()


@needs.devices(2)
def test_device_index(device: str, backend: ModuleType) -> None:
    """The current device is the same in torch.accelerator and in torch.<name>."""
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == backend.current_device() == 1, (
            f"torch.accelerator and torch.{device} do not agree on the current device"
        )
        assert torch.ones(1, device=device).device.index == 1, "a new tensor is not on the current device"
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == 0, "device_index(None) changes the current device"
    try:
        accelerator.set_device_index(f"{device}:1")
        assert backend.current_device() == 1, f"set_device_index does not change the current device of torch.{device}"
    finally:
        accelerator.set_device_index(0)


def test_device_that_does_not_exist() -> None:
    """torch.accelerator refuses a device that does not exist."""
    for use in (accelerator.set_device_index, accelerator.synchronize, accelerator.current_stream):
        with pytest.raises((IndexError, RuntimeError)):
            use(63)
    assert accelerator.current_device_index() == 0, (
        f"device {accelerator.current_device_index()} is current after one that does not exist was refused"
    )


@needs.feature("streams")
def test_streams(device: str, backend: ModuleType) -> None:
    """The current stream is the same in torch.accelerator and in torch.<name>, and operators run on it."""
    stream = torch.Stream()
    before = accelerator.current_stream()
    is_default = is_same_stream(before, backend.default_stream())
    assert is_default, f"the current stream at the start is {before}, not the default stream"
    accelerator.set_stream(stream)
    try:
        is_current = is_same_stream(backend.current_stream(), stream)
        assert is_current, f"set_stream does not change the current stream of torch.{device}"
        x = torch.ones(100, device=device).mul_(3)
        stream.synchronize()
        assert x.sum().item() == 300, f"operators on another stream than the default one give {x.sum().item()}, not 300"
    finally:
        accelerator.set_stream(before)
    accelerator.synchronize()


@needs.devices(2)
@needs.feature("streams")
def test_set_stream_changes_the_device(device: str, backend: ModuleType) -> None:
    """torch.accelerator.set_stream makes the stream's device the current one."""
    before = accelerator.current_stream(1)
    accelerator.set_stream(torch.Stream(f"{device}:1"))
    try:
        assert backend.current_device() == 1, (
            f"set_stream of a stream on device 1 leaves device {backend.current_device()} current"
        )
    finally:
        accelerator.set_stream(before)
        accelerator.set_device_index(0)


def test_capability(device: str) -> None:
    """float32 is among the dtypes in the device's capability."""
    try:
        told = accelerator.get_device_capability(device)["supported_dtypes"]
    except RuntimeError as error:  # a device need not tell, and CUDA did not in PyTorch 2.11
        if has("torch_backend"):
            raise
        needs.not_offered(str(error).partition("\n")[0])
    assert torch.float32 in told


@needs.feature("memory statistics")
def test_memory(device: str) -> None:
    """torch.accelerator counts the memory of a tensor while it lives, and its peak."""
    accelerator.empty_cache()
    before = accelerator.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.bool, device=device)
    counted = accelerator.memory_allocated() - before
    assert counted >= 1 << 20, f"a tensor of {1 << 20} bytes is counted as {counted} bytes"
    assert accelerator.memory_reserved() >= accelerator.memory_allocated(), "less memory is reserved than allocated"
    accelerator.reset_peak_memory_stats()
    peak = accelerator.max_memory_allocated()
    assert peak >= 1 << 20, f"the peak, {peak} bytes, is less than the memory of a tensor that is alive"
    assert accelerator.max_memory_reserved() >= peak
    assert accelerator.memory_stats()["allocated_bytes.all.current"] == accelerator.memory_allocated(), (
        "memory_stats and memory_allocated count differently"
    )
    del x
    assert accelerator.memory_allocated() == before, "the memory of a tensor that is gone is still counted"
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0, (
        "reset_accumulated_memory_stats does not reset"
    )


@needs.feature("memory limits")
def test_memory_info(backend: ModuleType) -> None:
    """torch.accelerator tells the device's free and total memory as torch.<name> does."""
    info = accelerator.get_memory_info() if hasattr(accelerator, "get_memory_info") else backend.mem_get_info()
    free, total = info
    assert 0 <= free <= total, f"{free} bytes of {total} are free"
    assert total == backend.mem_get_info()[1]


@needs.feature("pinned memory")
def test_host_cache(device: str) -> None:
    """Pinned memory that is cached can be given back, and pinned memory can be had again."""
    x = torch.ones(1000).pin_memory()
    del x
    if hasattr(accelerator, "empty_host_cache"):
        accelerator.empty_host_cache()
    assert torch.ones(1000).pin_memory().to(device).sum().item() == 1000, (
        "pinned memory does not work after its cache was emptied"
    )


@needs.feature("generator")
def test_seeds(device: str, backend: ModuleType) -> None:
    """torch.accelerator's seed and state are those of torch.<name>, in versions of PyTorch that have them."""
    torch.manual_seed(21)
    assert backend.initial_seed() == 21, f"torch.manual_seed does not reach torch.{device}.initial_seed"
    random = getattr(accelerator, "random", None)
    if random is not None:
        assert random.initial_seed() == 21
        assert torch.equal(random.get_rng_state(), backend.get_rng_state())


@needs.feature("event times")
def test_generic_event() -> None:
    """torch.Event records on the device's current stream, is done after it was waited for, and measures time."""
    start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert end.query(), "an event that was waited for says that it is not done"
    assert start.elapsed_time(end) >= 0, f"the time between two events is {start.elapsed_time(end)} ms"
