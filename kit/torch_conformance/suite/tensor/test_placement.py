"""Where results lie, and what happens if the inputs lie in different places."""

from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_close, assert_values, check_refused

SAME_DEVICE = "Expected all tensors to be on the same device"


def test_results_are_on_the_device(device: str) -> None:
    """Results lie on their inputs' device, those of operators that the CPU computes included."""
    x = torch.arange(16.0).reshape(4, 4).to(device) + torch.eye(4, device=device) * 20
    results = {
        "qr": torch.linalg.qr(x),
        "slogdet": torch.linalg.slogdet(x),
        "sort": torch.sort(x),
        "unique": torch.unique(x, return_inverse=True, return_counts=True),
        "histc": [torch.histc(x, 4)],
        "nonzero": [torch.nonzero(x)],
        "tril_indices": [torch.tril_indices(3, 3, device=device)],
        "cdist": [torch.cdist(x, x)],
        "split": torch.split(x, 2),
        "max_pool1d": torch.nn.functional.max_pool1d(x, 2, return_indices=True),
        "foreach_add": torch.ops.aten._foreach_add([x, x], 1),
        "foreach_lerp": torch._foreach_lerp([x], [x], 0.5),
    }
    for name, tensors in results.items():
        for number, result in enumerate(tensors):
            assert result.device == x.device, f"result {number} of {name} is on {result.device}"


@needs.dtype("complex64")
def test_complex_results_are_on_the_device(device: str) -> None:
    """Complex results of real inputs lie on their inputs' device."""
    x = torch.eye(4, device=device)
    for result in (*torch.linalg.eig(x), torch.fft.rfft(x)):
        assert result.device == x.device, f"a complex result is on {result.device}"


@needs.devices(2)
def test_results_are_on_the_inputs_device(device: str, backend: ModuleType) -> None:
    """An operator runs on its inputs' device even if another is current, and leaves the current device alone."""
    x = torch.eye(3, device=f"{device}:1")
    results = {
        "add": x + 1,
        "matmul": x @ x,
        "inv": torch.linalg.inv(x),
        "lgamma": torch.lgamma(x),
        "rand_like": torch.rand_like(x),
        "nonzero": x.nonzero(),
        "clone": x.t().clone(),
        "sum": x.sum(),
        "index": x[torch.tensor([0, 2])],
        "long": x.long(),
        "zeros_like": torch.zeros_like(x),
    }
    for name, result in results.items():
        assert result.device.index == 1, f"{name} of a tensor on device 1 is on {result.device}"
    assert_close(results["matmul"], torch.eye(3), device, "a product on device 1")
    assert backend.current_device() == 0, f"operators on device 1 left device {backend.current_device()} current"


@needs.feature("memory of its own")
def test_mixing_devices_raises(device: str) -> None:
    """An operator on tensors of the device and of the CPU raises, whichever comes first."""
    x, host = torch.ones(2, 2, device=device), torch.ones(2, 2)
    uses = {
        "add": lambda: x + host,
        "add, CPU first": lambda: host + x,
        "matmul": lambda: x @ host,
        "cat": lambda: torch.cat([x, host]),
        "where": lambda: torch.where(x > 0, x, host),
        "mul_": lambda: x.mul_(host),
        "mul_ of the CPU's": lambda: host.mul_(x),
        "linear": lambda: torch.nn.functional.linear(x, host),
        "lerp": lambda: torch.lerp(x, host, 0.5),
        "index_select": lambda: host.index_select(0, torch.tensor([0], device=device)),
    }
    with pytest.raises(RuntimeError):  # PyTorch looks at the outputs before any kernel does
        torch.linalg.solve(x, host)
    check_refused(uses, f"one tensor is on {device} and one on the CPU", SAME_DEVICE)
    assert_values(x, [[1, 1], [1, 1]], "a tensor after in-place operators that raised")


@needs.devices(2)
def test_mixing_two_devices_raises(device: str) -> None:
    """An operator on tensors of two devices raises."""
    x, other = torch.ones(2, device=device), torch.ones(2, device=f"{device}:1")
    uses = {
        "add": lambda: x + other,
        "cat": lambda: torch.cat([x, other]),
        "dot": lambda: torch.dot(x, other),
        "mul_": lambda: x.mul_(other),
    }
    check_refused(uses, "the tensors are on two devices", SAME_DEVICE)


def test_host_scalars_mix_with_the_device(device: str) -> None:
    """A tensor of the CPU without dimensions works with tensors of the device as a number does."""
    x = torch.ones(2, device=device)
    assert_values(x + torch.tensor(2.0), [3, 3], "the device's plus the CPU's")
    assert_values(torch.tensor(2.0) + x, [3, 3], "the CPU's plus the device's")
    assert (x * torch.tensor(2, dtype=torch.int64)).dtype is torch.float32, (
        "a tensor of the CPU without dimensions raises the dtype"
    )
    assert_values(torch.where(x > 0, torch.tensor(5.0), x), [5, 5], "where")
    assert_values(torch.add(x, 1, alpha=2), [3, 3], "add with alpha")


@needs.feature("memory of its own")
def test_layouts_that_are_not_offered(device: str) -> None:
    """A layout that is only the CPU's raises, and the device works on."""
    x = torch.eye(3, device=device)
    with pytest.raises((NotImplementedError, RuntimeError)):
        x.to_mkldnn()
    assert x.sum().item() == 3, "the device does not work after a layout was refused"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_function_transforms(device: str) -> None:
    """torch.func's transforms give on the device what they give on the CPU."""
    x = torch.arange(3.0, device=device)
    assert_values(torch.func.grad(lambda a: (a * a).sum())(x), [0, 2, 4], "grad")
    assert_values(torch.vmap(torch.sum)(torch.ones(2, 3, device=device)), [3, 3], "vmap")
    _, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
    assert_close(tangent, torch.arange(3.0).cos(), device, "jvp")
    assert_values(torch.func.hessian(lambda a: (a**3).sum())(x).diagonal(), [0, 6, 12], "hessian")
