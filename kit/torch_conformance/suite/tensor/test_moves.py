"""The ways to ask for a tensor elsewhere or for a copy of it: ``to``, ``cpu``, ``clone`` and what gradients do."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_equal, assert_values, numbers


def test_to(device: str) -> None:
    """``to`` copies only if device or dtype differ or a copy is asked for."""
    x = torch.arange(6.0).view(2, 3)
    y = x.to(device)
    assert y.to(device) is y, "a tensor that is on the device already was copied"
    assert y.to(str(y.device)) is y, "a tensor that is on the device already was copied as its index was named"
    y.to(device, copy=True).zero_()
    assert_equal(y, x, "a tensor after a write to what to(copy=True) gave")
    assert y.to(torch.bool).dtype is torch.bool, f"to(bool) gives {y.to(torch.bool).dtype}"
    assert y.to("cpu", torch.int64).dtype is torch.int64, f"to the CPU as int64 gives {y.to('cpu', torch.int64).dtype}"
    assert y.to(torch.zeros(1, dtype=torch.int64)).device.type == "cpu", "to() a tensor of the CPU stays on the device"
    assert x.to(y).device == y.device, f"to() a tensor of the device is on {x.to(y).device}"
    assert_equal(y.to("cpu"), x, "a tensor that went to the device and back")


def test_strides_after_a_move(device: str) -> None:
    """A tensor that goes to the device and back keeps the strides that a clone of it has."""
    x = numbers(2, 3, 4, 5)
    views = {
        "permuted": x.permute(3, 0, 1, 2),
        "sliced": x[:, ::2],
        "expanded": x[:1].expand(7, 3, 4, 5),
        "channels_last": x.to(memory_format=torch.channels_last),
    }
    for name, view in views.items():
        # Copies are asked for: what is there already may stay as it is.
        moved, wanted = view.to(device, copy=True), view.clone().stride()
        assert moved.stride() == wanted or not has("storage"), (
            f"{name}: the strides are {moved.stride()} on the device, not {wanted}"
        )
        assert moved.cpu().stride() == wanted, f"{name}: the strides are {moved.cpu().stride()} after the way back"
        assert_equal(moved, view, name)
        assert moved.to("cpu", memory_format=torch.contiguous_format, copy=True).is_contiguous(), (
            f"{name}: to() a contiguous format is not contiguous"
        )


def test_clone(device: str) -> None:
    """A clone of any view has the view's values and memory of its own."""
    x = numbers(3, 4).to(device)
    views = {"whole": x, "transposed": x.t(), "sliced": x[:, ::2], "expanded": x[:1].expand(5, 4), "nothing": x[:0]}
    for name, view in views.items():
        duplicate, wanted = view.clone(), view.cpu().clone().stride()
        assert duplicate.stride() == wanted or view.stride(0) == 0 or not has("storage"), (
            f"{name}: {duplicate.stride()}, not {wanted}"
        )
        assert_equal(duplicate, view.cpu(), f"a clone of a tensor, {name}")
        duplicate.fill_(-1)
        assert_equal(x, numbers(3, 4), f"a tensor after a write to a clone of it, {name}")


@needs.devices(2)
def test_moves_between_devices(device: str, backend: ModuleType) -> None:
    """A tensor goes from one device to another with its values and strides, whichever device is the current one."""
    x = numbers(3, 4).to(f"{device}:0")
    y = x.to(f"{device}:1")
    assert y.device.index == 1, f"a tensor moved to device 1 is on {y.device}"
    assert_equal(y, x.cpu(), "a tensor on another device")
    assert x.t().to(f"{device}:1", torch.int64).stride() == (1, 4), (
        f"a transposed tensor that was moved and converted has strides {x.t().to(f'{device}:1', torch.int64).stride()}"
    )
    x.copy_(y.add(1))
    assert_equal(x, y.cpu() + 1, "a tensor copied from another device")
    with backend.device(1):
        assert_equal(x.to(device), x.cpu(), "a tensor moved to the current device")
        assert x.to(device).device.index == 1, "a tensor moved to the device without an index is not on the current one"
        assert x.clone().device.index == 0, "a clone is not on its source's device"
        assert x.to(torch.int64).device.index == 0, "a conversion is not on its source's device"


@needs.devices(2)
def test_gradients_between_devices(device: str) -> None:
    """The gradient of a copy to another device comes back to the first."""
    x = torch.ones(3, device=f"{device}:0", requires_grad=True)
    (x.to(f"{device}:1") * torch.arange(3.0, device=f"{device}:1")).sum().backward()
    assert x.grad is not None
    assert x.grad.device.index == 0, f"the gradient of a tensor on device 0 is on {x.grad.device}"
    assert_values(x.grad, [0, 1, 2], "the gradient")


@needs.dtype("float16")
def test_gradients_through_copies(device: str) -> None:
    """Gradients go through copies to the device, back, in place and with a conversion."""
    x = torch.ones(3, requires_grad=True)
    (x.to(device) * 2).cpu().sum().backward()
    assert x.grad is not None
    assert_values(x.grad, [2, 2, 2], "the gradient of a round trip")
    z = torch.zeros(2, 3, device=device).clone()
    z.copy_(x.to(device).half())
    z.sum().backward()
    assert_values(x.grad, [4, 4, 4], "the gradient of a copy that converts and broadcasts")


def test_meta_tensors_become_real(device: str) -> None:
    """empty_like of a meta tensor gives memory on the device, and a meta tensor itself cannot be copied there."""
    meta = torch.empty(2, 3, device="meta")
    assert torch.empty_like(meta, device=device).device.type == device, (
        "empty_like of a meta tensor is not on the device"
    )
    with pytest.raises(NotImplementedError):
        meta.to(device)
