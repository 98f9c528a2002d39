"""torch.<name>: what devices there are, and which is current."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs


def test_counts_and_availability(device: str, backend: ModuleType) -> None:
    """The device is available and there is at least one of it."""
    assert backend.is_available() is True, "is_available() says that there is no device"
    assert backend.device_count() >= 1
    assert backend == torch.get_device_module(device), (
        f"torch.get_device_module gives another module than torch.{device}"
    )


def test_properties(device: str, backend: ModuleType) -> None:
    """Every device tells its name."""
    for index in range(backend.device_count()):
        properties = backend.get_device_properties(index)
        assert properties.name == backend.get_device_name(f"{device}:{index}") != "", (
            f"device {index} has the name {properties.name!r}"
        )


@needs.devices(2)
def test_peers(backend: ModuleType) -> None:
    """can_device_access_peer says whether one device reaches another's memory."""
    assert isinstance(backend.can_device_access_peer(1, 0), bool), "can_device_access_peer is no truth value"


@needs.feature("index")
def test_device_that_does_not_exist(backend: ModuleType) -> None:
    """A device that does not exist cannot be made current, and the current one stays."""
    before = backend.current_device()
    with pytest.raises((IndexError, RuntimeError, AssertionError, ValueError)):
        backend.set_device(63)
    assert backend.current_device() == before, f"device {backend.current_device()} is current after one was refused"


@needs.feature("index")
def test_entering_a_device_that_does_not_exist(backend: ModuleType) -> None:
    """A device that does not exist cannot be entered, and the current one stays."""
    with pytest.raises((IndexError, RuntimeError)), backend.device(63):
        pass
    assert backend.current_device() == 0, (
        f"device {backend.current_device()} is current after one that does not exist was refused"
    )


@needs.feature("pinned memory")
def test_synchronize(device: str, backend: ModuleType) -> None:
    """A device that was waited for has done all its work, and can be waited for without work."""
    for index in range(backend.device_count()):
        backend.synchronize(index)
        host = torch.zeros(100_000, pin_memory=True)
        host.copy_(torch.full((100_000,), 3.0, device=f"{device}:{index}"), non_blocking=True)
        backend.synchronize(index)
        assert bool((host == 3).all()), f"synchronize returned before device {index} had done its work"
    backend.synchronize()
