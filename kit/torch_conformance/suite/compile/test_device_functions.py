"""The functions of the device module inside of compiled code: they answer as outside, and most do not end the graph."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch_conformance import needs
from torch_conformance.suite.compile._support import compiled

pytestmark = needs.feature("torch_backend")

ANSWERS: dict[str, Callable[[ModuleType, Tensor], object]] = {
    "current_device": lambda module, x: module.current_device(),
    "device_count": lambda module, x: module.device_count(),
    "is_available": lambda module, x: module.is_available(),
    "is_initialized": lambda module, x: module.is_initialized(),
    "is_bf16_supported": lambda module, x: module.is_bf16_supported(),
    "get_device_name": lambda module, x: module.get_device_name(),
    "get_device_capability": lambda module, x: module.get_device_capability(x.device),
    "get_device_properties": lambda module, x: module.get_device_properties(0).total_memory,
    "get_amp_supported_dtype": lambda module, x: len(module.get_amp_supported_dtype()),
    "get_device_module": lambda module, x: torch.get_device_module(x.device).device_count(),
}


@pytest.mark.parametrize("function", ANSWERS)
def test_answers(device: str, backend: ModuleType, function: str) -> None:
    """Compiled code gets from a function of the device module the answer that other code gets, in one graph."""
    ask = ANSWERS[function]
    x = torch.ones(3, device=device)
    result, answer = compiled(lambda x: (x + 1, ask(backend, x)))(x)
    assert answer == ask(backend, x), f"in compiled code, {function} answers something else"
    assert result.tolist() == [2] * 3


@needs.devices(2)
def test_the_current_device_when_it_runs(device: str, backend: ModuleType) -> None:
    """Compiled code that asks for the current device gets the one that is current when it runs."""
    run = compiled(lambda x: x + backend.current_device())
    x = torch.zeros(2)
    for index in (0, 1, 0):
        with backend.device(index):
            assert run(x).tolist() == [index] * 2


@needs.devices(2)
def test_choosing_a_device(device: str, backend: ModuleType) -> None:
    """Code to compile that makes another device current creates its tensors there, and leaves the device as it was."""

    def run(x: Tensor) -> Tensor:
        with backend.device(1):
            return torch.ones(3, device=device) + x.sum().to(device)

    torch.compiler.reset()
    fast = torch.compile(run, backend="aot_eager")
    for number in (1.0, 2.0):
        result = fast(torch.full((2,), number))
        assert result.device == torch.device(device, 1)
        assert result.tolist() == [1 + 2 * number] * 3
        assert backend.current_device() == 0, "the current device is not the one before"


def test_waiting(device: str, backend: ModuleType) -> None:
    """Compiled code that waits for the device has its work done."""

    def run(x: Tensor) -> Tensor:
        y = x * 2
        backend.synchronize()
        backend.synchronize(x.device)
        return y

    assert compiled(run)(torch.ones(1000, device=device)).tolist() == [2] * 1000


def test_memory_and_seeds(device: str, backend: ModuleType) -> None:
    """Code to compile that seeds the device, and asks for its memory, does both as it would without."""

    def run(x: Tensor) -> tuple[Tensor, int]:
        backend.manual_seed(7)
        y = torch.rand(100, device=device) + x
        return y, backend.memory_allocated(device)

    torch.compiler.reset()
    fast = torch.compile(run, backend="aot_eager")
    x = torch.zeros(100, device=device)
    with torch.random.fork_rng([0], device_type=device):
        (one, allocated), (two, _), (expected, _) = fast(x), fast(x), run(x)
    assert torch.equal(one, two), "the seed in the code has no effect when it runs again"
    assert torch.equal(one, expected)
    assert allocated >= x.nbytes, f"{allocated} bytes are said to be allocated, but there is a tensor of {x.nbytes}"
