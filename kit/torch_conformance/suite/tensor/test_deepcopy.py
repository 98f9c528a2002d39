"""Duplicates of tensors and modules: on the same device, with the same layout, on memory of their own."""

import copy

import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_equal, assert_same, assert_values, every_dtype


@needs.feature("deep copies of storages")
def test_deepcopy(device: str) -> None:
    """Deep copies of tensors on one storage share one new storage, with the layouts of the originals."""
    base = torch.arange(12.0, device=device)
    whole, transposed, part = copy.deepcopy([base, base.view(3, 4).t(), base[2:5]])
    assert_same(transposed, torch.arange(12.0).view(3, 4).t(), device, "a deep copy of a transposed view")
    assert part.storage_offset() == 2, f"the deep copy of a view has offset {part.storage_offset()}, not 2"
    assert whole.data_ptr() != base.data_ptr(), "a deep copy shares memory with its original"
    whole.fill_(7)
    assert bool((transposed == 7).all()), "deep copies of two views of one tensor do not share memory"
    assert bool((part == 7).all()), "the deep copy of a slice does not see a write to the deep copy of its base"
    assert_equal(base, torch.arange(12.0), "a tensor after a write to its deep copy")


@every_dtype
def test_deepcopy_of_every_dtype(device: str, dtype: torch.dtype) -> None:
    """A deep copy of a tensor of any dtype has its bytes."""
    x = torch.tensor([0.0, 1.0, 2.0]).to(dtype)
    assert_equal(copy.deepcopy(x.to(device)).cpu().view(torch.uint8), x.view(torch.uint8), f"a deep copy of {dtype}")


@needs.devices(2)
def test_deepcopy_stays_on_its_device(device: str) -> None:
    """A deep copy is on its original's device, whichever is the current one."""
    x = torch.arange(3.0, device=f"{device}:1")
    duplicate = copy.deepcopy(x)
    assert duplicate.device == x.device, f"the deep copy of a tensor on {x.device} is on {duplicate.device}"
    assert_values(duplicate, [0, 1, 2], "the deep copy")


def test_deepcopy_keeps_what_autograd_needs(device: str) -> None:
    """A deep copy of a leaf keeps requires_grad and the gradient it has."""
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    duplicate = copy.deepcopy(x)
    assert duplicate.requires_grad, "a deep copy does not require a gradient as its original does"
    assert duplicate.grad is not None
    assert x.grad is not None
    assert_values(duplicate.grad, [2, 2, 2], "the gradient of a deep copy")
    duplicate.grad.zero_()
    assert_values(x.grad, [2, 2, 2], "a gradient after a write to that of a deep copy")


@needs.feature("storage")  # without one PyTorch pickles the values
def test_shallow_copy(device: str) -> None:
    """copy.copy of a tensor shares its memory."""
    x = torch.zeros(3, device=device)
    copy.copy(x).add_(1)
    assert_values(x, [1, 1, 1], "a tensor after a write to its shallow copy")


def test_deepcopy_of_a_module(device: str) -> None:
    """A deep copy of a module is on the device and trains by itself."""
    module = torch.nn.BatchNorm1d(3).to(device)
    twin = copy.deepcopy(module)
    assert all(value.device.type == device for value in twin.state_dict().values()), (
        "the deep copy of a module is not on the device"
    )
    with torch.no_grad():
        twin.weight.fill_(5)
    assert_values(module.weight, [1, 1, 1], "a module's weight after a write to its deep copy's")


@needs.feature("data in place")
def test_module_to_keeps_parameters(device: str) -> None:
    """A module that moves to the device and back keeps its parameters, so that an optimizer still knows them."""
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    before = [id(parameter) for parameter in module.parameters()]
    module.to(device)
    assert [id(parameter) for parameter in module.parameters()] == before, "the module has other parameters now"
    module(torch.ones(1, 2, device=device)).sum().backward()
    bias = module.bias.detach().cpu().clone()
    optimizer.step()
    assert_equal(module.bias, bias - 1, "the bias after a step with gradient one")
    module.cpu()
    assert [id(parameter) for parameter in module.parameters()] == before, (
        "a module that came back to the CPU has other parameters"
    )
    assert module.weight.device.type == "cpu", f"a module's weight is on {module.weight.device} after cpu()"


@needs.feature("data in place")
@needs.dtype("bfloat16")
def test_converted_modules_keep_parameters(device: str) -> None:
    """A module that moves to the device and is converted there keeps its parameters."""
    module = torch.nn.Linear(2, 2)
    weight = module.weight
    module.to(device).bfloat16()
    assert module.weight is weight, "a module that was moved and converted has another weight"
    assert weight.dtype is torch.bfloat16, f"the dtype of a weight after bfloat16() is {weight.dtype}"


@needs.dtype("float16")
@needs.dtype("bfloat16")
def test_modules_on_the_device(device: str) -> None:
    """A module is made on, moved to, converted on and materialized on the device."""
    module = torch.nn.BatchNorm2d(3, device=device)
    assert {value.device.type for value in module.state_dict().values()} == {device}, (
        "a module that was made on the device has state elsewhere"
    )
    assert torch.nn.Linear(2, 2, device="meta").to_empty(device=device).weight.device.type == device, (
        "to_empty does not materialize on the device"
    )
    assert module.half().weight.dtype is torch.float16, "half() does not convert a module on the device"
    assert module.bfloat16().weight.dtype is torch.bfloat16, "bfloat16() does not convert a module on the device"


@needs.feature("methods")
def test_modules_have_a_method_that_moves_them(device: str) -> None:
    """The method of modules that is named after the device moves them there."""
    assert getattr(torch.nn.Linear(2, 2), device)().weight.device.type == device, (
        "the module method that is named after the device does not move there"
    )
