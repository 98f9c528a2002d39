"""Tensors made on the device have the values, dtypes and strides they have on the CPU."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_alike, assert_same, assert_same_outcome, each, evaluate

FACTORIES: dict[str, Callable[[str], Tensor]] = {
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "tensor 0-d": lambda d: torch.tensor(2.5, device=d),
    "tensor of nothing": lambda d: torch.tensor([], device=d),
    "tensor from numpy": lambda d: torch.tensor(np.arange(6).reshape(2, 3).T, device=d),
    "as_tensor": lambda d: torch.as_tensor([1.0, 2.0], device=d),
    "asarray": lambda d: torch.asarray(np.ones(3, dtype=np.float32), device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int16, device=d),
    "ones of an odd size": lambda d: torch.ones(257, dtype=torch.uint8, device=d),
    "full": lambda d: torch.full((2, 3), 7, device=d),
    "full complex": lambda d: torch.full((2,), 1 + 2j, device=d),
    "arange": lambda d: torch.arange(1, 10, 3, device=d),
    "arange float": lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
    "arange downwards": lambda d: torch.arange(5, -5, -2, device=d),
    "range of nothing": lambda d: torch.arange(0, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, 1, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, 3, device=d).t()),
    "full_like": lambda d: torch.full_like(torch.ones(2, 3, device=d), 5, dtype=torch.int64),
    "new_zeros": lambda d: torch.ones(2, device=d).new_zeros(3, 4),
    "new_full": lambda d: torch.ones(2, device=d).new_full((3,), 9),
    "new_tensor": lambda d: torch.ones(2, device=d).new_tensor([1, 2]),
    "new": lambda d: torch.ones(2, device=d).new([1, 2]),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "from the CPU": lambda d: torch.arange(5).to(d),
    "channels_last": lambda d: torch.ones(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last),
}

ROUNDED: dict[str, Callable[[str], Tensor]] = {
    "linspace": lambda d: torch.linspace(0, 1, 7, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 5, device=d),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(8, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(5, device=d),
}


@each("factory", FACTORIES, complex64=["full complex", "complex"], int16=["ones"], uint8=["ones of an odd size"])
def test_factory(device: str, factory: Callable[[str], Tensor]) -> None:
    """A function that makes a tensor makes on the device the tensor that it makes on the CPU."""
    assert_same(factory(device), factory("cpu"), device, "the new tensor")


@each("factory", ROUNDED)
def test_factory_that_computes(device: str, factory: Callable[[str], Tensor]) -> None:
    """A function that computes a new tensor's values computes them on the device as on the CPU, up to rounding."""
    actual, expected = factory(device), factory("cpu")
    assert_alike(actual, expected, device, "the new tensor")
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize(
    "code",
    [
        "torch.empty(-1, device=d)",
        "torch.empty_strided((2,), (1, 1), device=d)",
        "torch.tensor([[1], [1, 2]], device=d)",
        "torch.arange(0, 5, -1, device=d)",
        "torch.ones(2, 3, device=d).view(7)",
    ],
)
def test_wrong_sizes_raise(device: str, code: str) -> None:
    """Sizes that make no tensor raise on the device the error that they raise on the CPU."""
    with pytest.raises((RuntimeError, ValueError)):
        evaluate(code, d=device)
    assert_same_outcome(lambda where: evaluate(code, d=where), device, code)


def test_default_device(device: str) -> None:
    """Within ``with torch.device(...)`` new tensors and modules are on the device, unless they say otherwise."""
    with torch.device(device):
        assert torch.ones(2).device.type == device, "torch.ones does not use the default device"
        assert torch.nn.Linear(2, 2).weight.device.type == device, "modules do not use the default device"
        assert torch.ones(2, device="cpu").device.type == "cpu", "the default device overrides one that was asked for"
    assert torch.ones(2).device.type == "cpu", "the default device was still set after the with statement"


def test_set_default_device(device: str) -> None:
    """After torch.set_default_device new tensors are on the device, until it is set back."""
    torch.set_default_device(device)
    try:
        assert torch.zeros(2).device.type == device, "torch.zeros does not use the default device"
        assert torch.tensor([1.0]).device.type == device, "torch.tensor does not use the default device"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu", "the default device is still set after it was set back"


@needs.dtype("float16")
def test_default_dtype(device: str) -> None:
    """Factories on the device make tensors of the default dtype."""
    torch.set_default_dtype(torch.float16)
    try:
        for x in (torch.zeros(2, device=device), torch.tensor([1.0], device=device), torch.rand(2, device=device)):
            assert x.dtype is torch.float16, f"the default dtype is float16, a new tensor has {x.dtype}"
    finally:
        torch.set_default_dtype(torch.float32)


@needs.feature("index")
@needs.feature("memory of its own")
def test_tensor_attributes(device: str) -> None:
    """A tensor on the device says so in every way PyTorch has for it."""
    x = torch.ones(2, 3, device=device)
    assert not x.is_cpu, "the tensor says that it is on the CPU"
    assert x.device == torch.device(device, 0), f"the tensor is on {x.device}"
    assert x.get_device() == 0, f"get_device() gives {x.get_device()}, not 0"
    assert x.type() == f"torch.{device}.FloatTensor", f"type() gives {x.type()}"
    assert x.layout is torch.strided
    assert not x.is_pinned(), "memory of the device says that it is pinned host memory"


@needs.feature("methods")
def test_tensor_methods(device: str) -> None:
    """Tensors have an attribute and a method that are named after the device, and say that and go there."""
    x = torch.ones(2, 3, device=device)
    assert getattr(x, f"is_{device}") is True, "the tensor does not say that it is on the device"
    assert getattr(torch.ones(2), device)().device == x.device, (
        f"the tensor method that is named after the device moves to {getattr(torch.ones(2), device)().device}"
    )


@needs.feature("index")
def test_a_device_that_is_not_there(device: str) -> None:
    """A tensor on a device with an index that does not exist cannot be made, and the device works on."""
    with pytest.raises((RuntimeError, IndexError)):
        torch.ones(1, device=f"{device}:63")
    assert torch.ones(1, device=device).item() == 1, (
        "the device does not work after a device that does not exist was asked for"
    )
