"""What torch_backend promises of torch.<name> beyond PyTorch: what devices declare, and what errors say."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.declaration import Declaration

pytestmark = needs.feature("torch_backend")


def test_properties(device: str, backend: ModuleType) -> None:
    """The properties of every device tell which device it is, its capability, processors and dtypes."""
    for index in range(backend.device_count()):
        properties = backend.get_device_properties(index)
        assert (properties.type, properties.index) == (device, index), (
            f"device {index} says that it is {properties.type}:{properties.index}"
        )
        assert (properties.major, properties.minor) == backend.get_device_capability(index), (
            f"device {index} tells two different capabilities"
        )
        assert properties.multi_processor_count >= 0, f"device {index} says that it has fewer processors than none"
        assert torch.float32 in properties.dtypes, f"device {index} does not declare float32"


def test_capability(device: str, declaration: Declaration) -> None:
    """The dtypes in torch.accelerator's capability of the device are among those that it declares."""
    supported = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    names = {str(dtype).removeprefix("torch.") for dtype in supported}
    assert names <= declaration.dtypes, f"{sorted(names - declaration.dtypes)} are not declared by the device"


def test_bfloat16(backend: ModuleType, declaration: Declaration) -> None:
    """is_bf16_supported says whether the device declares bfloat16."""
    assert backend.is_bf16_supported() is ("bfloat16" in declaration.dtypes), (
        "is_bf16_supported() does not say what the device declares"
    )


@needs.devices(2)
def test_peers(backend: ModuleType) -> None:
    """can_device_access_peer is False if the device does not declare that devices copy to each other."""
    if "PEER" not in backend.get_device_properties(0).capabilities:
        assert backend.can_device_access_peer(0, 1) is False, (
            "devices that do not declare TB_CAP_PEER say that they reach each other"
        )


@pytest.mark.parametrize("function", ["set_device", "synchronize", "get_device_name", "get_rng_state", "Stream"])
def test_device_that_does_not_exist(device: str, backend: ModuleType, function: str) -> None:
    """Every function that takes a device refuses one that does not exist, and says how many there are."""
    with pytest.raises(IndexError, match=f"There is no device {device}:63: this process has"):
        getattr(backend, function)(63)


def test_entering_a_device_that_does_not_exist(device: str, backend: ModuleType) -> None:
    """Who enters or names a device that does not exist is told which."""
    with pytest.raises((IndexError, RuntimeError), match="63"), backend.device(63):
        pass
    with pytest.raises((IndexError, RuntimeError), match="63"):
        torch.ones(1, device=f"{device}:63")
