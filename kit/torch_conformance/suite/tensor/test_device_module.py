"""torch.<name>: what devices there are, and which is current."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.declaration import Declaration


def test_counts_and_availability(device: str, backend: ModuleType) -> None:
    """The device is available and there is at least one of it."""
    assert backend.is_available() is True, "is_available() says that there is no device"
    assert backend.device_count() >= 1
    assert torch.get_device_module(device) is backend, (
        f"torch.get_device_module gives another module than torch.{device}"
    )


def test_properties(device: str, backend: ModuleType) -> None:
    """Every device tells its name, memory and dtypes."""
    for index in range(backend.device_count()):
        properties = backend.get_device_properties(index)
        assert properties.name == backend.get_device_name(f"{device}:{index}") != "", (
            f"device {index} has the name {properties.name!r}"
        )
        assert (properties.type, properties.index) == (device, index), (
            f"device {index} says that it is {properties.type}:{properties.index}"
        )
        assert (properties.major, properties.minor) == backend.get_device_capability(index), (
            f"device {index} tells two different capabilities"
        )
        assert properties.total_memory > 0, f"device {index} says that it has no memory"
        assert properties.multi_processor_count >= 1, f"device {index} says that it has no processor"
        assert torch.float32 in properties.dtypes, f"device {index} does not declare float32"


def test_bfloat16(backend: ModuleType, declaration: Declaration) -> None:
    """is_bf16_supported says whether the device declares bfloat16."""
    assert backend.is_bf16_supported() is ("bfloat16" in declaration.dtypes), (
        "is_bf16_supported() does not say what the device declares"
    )


@needs.devices(2)
def test_peers(backend: ModuleType) -> None:
    """can_device_access_peer is True only if the device declares that devices copy to each other."""
    if "PEER" not in backend.get_device_properties(0).capabilities:
        assert backend.can_device_access_peer(0, 1) is False, (
            "devices that do not declare TB_CAP_PEER say that they reach each other"
        )
    assert isinstance(backend.can_device_access_peer(1, 0), bool), "can_device_access_peer is no truth value"


@pytest.mark.parametrize("function", ["set_device", "synchronize", "get_device_name", "get_rng_state", "Stream"])
def test_device_that_does_not_exist(device: str, backend: ModuleType, function: str) -> None:
    """Every function that takes a device refuses one that does not exist, and says how many there are."""
    with pytest.raises(IndexError, match=f"There is no device {device}:63: this process has"):
        getattr(backend, function)(63)


def test_entering_a_device_that_does_not_exist(backend: ModuleType) -> None:
    """A device that does not exist cannot be made current, and the current one stays."""
    with pytest.raises((IndexError, RuntimeError), match="63"), backend.device(63):
        pass
    assert backend.current_device() == 0, (
        f"device {backend.current_device()} is current after one that does not exist was refused"
    )


def test_synchronize(device: str, backend: ModuleType) -> None:
    """A device that was waited for has done all its work, and can be waited for without work."""
    for index in range(backend.device_count()):
        backend.synchronize(index)
        host = torch.zeros(100_000, pin_memory=True)
        host.copy_(torch.full((100_000,), 3.0, device=f"{device}:{index}"), non_blocking=True)
        backend.synchronize(index)
        assert bool((host == 3).all()), f"synchronize returned before device {index} had done its work"
    backend.synchronize()
