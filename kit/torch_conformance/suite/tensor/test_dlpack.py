"""DLPack: tensors of the device as other libraries see them."""

import pytest
import torch
from torch.utils.dlpack import DLDeviceType, to_dlpack

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_same, assert_values, every_dtype

pytestmark = needs.feature("dlpack")

KNOWN = {
    "cpu": DLDeviceType.kDLCPU,
    "cuda": DLDeviceType.kDLROCM if torch.version.hip else DLDeviceType.kDLCUDA,
    "xpu": DLDeviceType.kDLOneAPI,
    "mps": DLDeviceType.kDLMetal,
}
"""What DLPack calls the devices that it knows; all others are extensions."""


def test_round_trip(device: str) -> None:
    """A tensor that goes through DLPack comes back on the same memory with the same layout."""
    x = torch.arange(6.0).to(device).reshape(2, 3).t()
    for y in (torch.from_dlpack(x), torch.from_dlpack(to_dlpack(x))):
        assert_same(y, x.cpu(), device, "a tensor after DLPack")
        assert y.data_ptr() == x.data_ptr(), "DLPack has copied the tensor"
        y.mul_(2)
    assert_values(x, [[0, 12], [4, 16], [8, 20]], "a tensor after writes through DLPack")


@every_dtype
def test_every_dtype(device: str, dtype: torch.dtype) -> None:
    """A tensor of any dtype that DLPack knows comes back with its dtype and values."""
    x = torch.tensor([0.0, 1.0, 1.0]).to(dtype)
    try:
        torch.from_dlpack(x)
    except (BufferError, RuntimeError, ValueError):
        with pytest.raises((BufferError, RuntimeError, ValueError)):
            torch.from_dlpack(x.to(device))
        return
    assert_same(torch.from_dlpack(x.to(device)), x, device, f"{dtype} after DLPack")


def test_dlpack_device(device: str) -> None:
    """__dlpack_device__ says on which device the tensor is, an extension if DLPack does not know it."""
    device_type, index = torch.ones(2, device=device).__dlpack_device__()
    assert (device_type, index) == (KNOWN.get(device, DLDeviceType.kDLExtDev), 0), (
        f"the tensor says it is on DLPack device ({device_type}, {index})"
    )


@needs.devices(2)
def test_another_device(device: str) -> None:
    """A tensor on the second device comes back from DLPack there."""
    x = torch.ones(2, device=f"{device}:1")
    assert x.__dlpack_device__()[1] == 1, f"a tensor on device 1 says it is on {x.__dlpack_device__()}"
    y = torch.from_dlpack(x)
    assert y.device == x.device, f"a tensor on {x.device} came back from DLPack on {y.device}"


def test_memory_outlives_its_tensor(device: str) -> None:
    """What came from DLPack keeps its memory after the tensor it came from is gone."""
    x = torch.full((1000,), 3.0, device=device)
    y = torch.from_dlpack(x)
    del x
    others = [torch.zeros(1000, device=device) for _ in range(5)]
    assert y.sum().item() == 3000, "memory that DLPack has was given to another tensor"
    assert len(others) == 5


def test_to_the_host(device: str) -> None:
    """DLPack gives the CPU a copy if it asks for one."""
    x = torch.arange(3.0).to(device)
    y = torch.from_dlpack(x, device="cpu", copy=None if has("memory of its own") else True)
    assert_values(y, [0, 1, 2], "the copy on the CPU")
    y.zero_()
    assert_values(x, [0, 1, 2], "the tensor after a write to the copy")


def test_what_dlpack_cannot_say(device: str) -> None:
    """A tensor that requires a gradient is not given to DLPack."""
    with pytest.raises(BufferError):
        torch.from_dlpack(torch.ones(2, device=device, requires_grad=True))


@needs.dtype("complex64")
def test_conj_views_are_not_exported(device: str) -> None:
    """A conjugated view, whose memory holds other numbers, is not given to DLPack."""
    with pytest.raises(BufferError):
        torch.from_dlpack(torch.ones(2, dtype=torch.complex64, device=device).conj())
