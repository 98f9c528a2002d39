"""What was compiled is used again where it fits, and only there."""

from types import ModuleType

import torch
from torch import Tensor
from torch_conformance import needs
from torch_conformance.suite.compile._support import compiled, counter


def test_the_same_input_compiles_once(device: str) -> None:
    """Inputs that differ in their values only are served by one compilation."""
    with counter() as compilations:
        run = torch.compile(lambda x: x + 1, backend=compilations)
        for number in range(4):
            assert run(torch.full((3,), float(number), device=device)).tolist() == [number + 1] * 3
    assert compilations.frame_count == 1, f"four calls were compiled {compilations.frame_count} times"


@needs.feature("accelerator")
def test_another_device_type_compiles_again(device: str) -> None:
    """What was compiled for the CPU is not used for the device, nor the other way round."""
    with counter() as compilations:
        run = torch.compile(lambda x: x + torch.ones(3, device=x.device), backend=compilations)
        for where in ("cpu", device, "cpu", device):
            result = run(torch.zeros(3, device=where))
            assert result.device.type == where
            assert result.tolist() == [1, 1, 1]
    assert compilations.frame_count == 2, f"two devices needed {compilations.frame_count} compilations"


@needs.devices(2)
def test_another_device_index_compiles_again(device: str) -> None:
    """What was compiled for device 0 is not used for device 1."""
    with counter() as compilations:
        run = torch.compile(lambda x: x + torch.ones(3, device=x.device), backend=compilations)
        for index in (0, 1, 0, 1):
            result = run(torch.zeros(3, device=f"{device}:{index}"))
            assert result.device.index == index
            assert result.tolist() == [1, 1, 1]
    assert compilations.frame_count == 2, f"two devices needed {compilations.frame_count} compilations"


@needs.devices(2)
def test_the_current_device_is_guarded(device: str, backend: ModuleType) -> None:
    """Compiled code that creates a tensor on the current device does so on the one that is current when it runs."""
    run = compiled(lambda x: x.cpu() + torch.ones(3, device=device).cpu())
    for index in (0, 1):
        with backend.device(index):
            assert run(torch.zeros(3, device=device)).tolist() == [1, 1, 1]


def test_another_dtype_and_layout_compile_again(device: str) -> None:
    """Inputs of another dtype, or with other strides, are not served by what was compiled for the first."""
    run = compiled(lambda x: x.float() * 2)
    for x in (torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(2, 3, dtype=torch.int32)):
        assert run(x.to(device)).tolist() == [[2, 2, 2]] * 2


def test_shapes_that_change(device: str) -> None:
    """Compiled with dynamic shapes, one compilation serves inputs of many sizes."""
    with counter() as compilations:
        run = torch.compile(lambda x: (x * 2).sum(0), backend=compilations, dynamic=True)
        for size in (3, 5, 17, 64):
            assert run(torch.ones(size, 2, device=device)).tolist() == [2 * size] * 2
    assert compilations.frame_count == 1, f"four sizes were compiled {compilations.frame_count} times"


def test_values_that_decide(device: str) -> None:
    """A function that reads a value of the device on the host, which ends a graph, still returns what it should."""

    def run(x: Tensor) -> Tensor:
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    torch.compiler.reset()
    fast = torch.compile(run, backend="aot_eager")
    for value in (1.0, -1.0, 2.0):
        x = torch.full((3,), value, device=device)
        assert fast(x).tolist() == run(x).tolist()
