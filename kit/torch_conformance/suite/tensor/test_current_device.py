"""The current device: set, entered and left, by thread, and what new tensors and operators make of it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_values

pytestmark = needs.devices(2)


def test_current_device_is_the_default(device: str, backend: ModuleType) -> None:
    """New tensors are on the current device, and results on their inputs' device."""
    with backend.device(1):
        assert torch.ones(2, device=device).device.index == 1, "torch.ones does not use the current device"
        assert torch.tensor([1.0], device=device).device.index == 1, "torch.tensor does not use the current device"
        assert torch.ones(2).to(device).device.index == 1, "to() without an index does not use the current device"
        assert torch.ones(2, device=f"{device}:0").add(1).device.index == 0, (
            "the result of an operator is not on its input's device"
        )
        assert torch.ones(2, device=f"{device}:0").clone().device.index == 0, "a clone is not on its source's device"
        assert torch.ones_like(torch.ones(2, device=f"{device}:0")).device.index == 0, (
            "ones_like is not on its source's device"
        )
        assert backend.current_device() == 1, "an operator on device 0 has made it the current device"


def test_set_device(device: str, backend: ModuleType) -> None:
    """set_device takes an index or a torch.device; a negative index changes nothing."""
    before = backend.current_device()
    try:
        names = [f"{device}:1"] if has("torch_backend") else []  # torch.cuda documents the others alone
        for argument in (1, torch.device(device, 1), *names):
            backend.set_device(0)
            backend.set_device(argument)
            assert backend.current_device() == 1, f"set_device({argument!r}) makes {backend.current_device()} current"
            assert torch.empty(0, device=device).device == torch.device(device, 1), (
                "a new tensor is not on the device that set_device has made current"
            )
        backend.set_device(-1)
        assert backend.current_device() == 1, "set_device(-1) changes the current device"
    finally:
        backend.set_device(before)


def test_current_device_belongs_to_the_thread(backend: ModuleType) -> None:
    """A new thread starts with device 0, whatever is current in the thread that starts it."""
    seen: list[int] = []
    with backend.device(1):
        thread = threading.Thread(target=lambda: seen.append(backend.current_device()))
        thread.start()
        thread.join()
        assert backend.current_device() == 1, "a thread has changed the current device of another one"
    assert seen == [0], f"a new thread starts with device {seen[0]} as the current one"


def test_threads_work_on_devices_of_their_own(device: str, backend: ModuleType) -> None:
    """Threads that use different devices at the same time do not change each other's current device."""
    barrier = threading.Barrier(2, timeout=30)
    wrong: list[str] = []

    def work(index: int) -> None:
        backend.set_device(index)
        for round in range(20):
            barrier.wait()
            x = torch.full((100,), float(index), device=device).add_(round)
            if x.device.index != index:
                wrong.append(f"a tensor of the thread on device {index} is on {x.device}")
            elif x.sum().item() != 100 * (index + round):
                wrong.append(f"the sum on device {index} is {x.sum().item()}, not {100 * (index + round)}")

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, index) for index in (0, 1)]:
            done.result()
    assert not wrong, wrong[0]


def test_device_context(device: str, backend: ModuleType) -> None:
    """A device that is entered is current until it is left, also by an exception, and None changes nothing."""
    with backend.device(1):
        assert backend.current_device() == 1, f"the current device within device(1) is {backend.current_device()}"
        with backend.device(f"{device}:0"):
            assert backend.current_device() == 0, f"the current device within device(0) is {backend.current_device()}"
        with backend.device(None), backend.device(-1), backend.device(torch.device(device)):
            assert backend.current_device() == 1, (
                f"a context that should change nothing makes device {backend.current_device()} current"
            )
    assert backend.current_device() == 0, f"device {backend.current_device()} is current after contexts were left"
    with pytest.raises(KeyError), backend.device(1):
        raise KeyError
    assert backend.current_device() == 0, "a device that was left by an exception is still the current one"


def test_torch_device_as_a_context(device: str) -> None:
    """Within ``with torch.device(...)`` of the second device new tensors are there."""
    with torch.device(device, 1):
        assert torch.ones(2).device.index == 1, "within torch.device of device 1 new tensors are elsewhere"
    assert torch.ones(2, device=device).device.index == 0, (
        "torch.device as a context changes the current device for good"
    )


def test_device_of(device: str, backend: ModuleType) -> None:
    """device_of enters the device of a tensor or storage, and nothing for one of the CPU."""
    there = torch.empty(2, device=f"{device}:1")
    for thing in (there, there.untyped_storage()):
        with backend.device_of(thing):
            assert backend.current_device() == 1, (
                f"device_of makes device {backend.current_device()} current, not the thing's device"
            )
    with backend.device_of(torch.empty(2)):
        assert backend.current_device() == 0, "device_of a tensor of the CPU changes the current device"


def test_backward_runs_on_each_tensors_device(device: str, backend: ModuleType) -> None:
    """Backward through two devices computes each gradient on its tensor's device, and leaves the current one alone."""
    x = torch.ones(3, device=f"{device}:0", requires_grad=True)
    y = torch.ones(3, device=f"{device}:1", requires_grad=True)
    ((x * 2).to(f"{device}:1") * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.device.index, y.grad.device.index) == (0, 1), (
        f"gradients are on devices {x.grad.device.index} and {y.grad.device.index}, not on 0 and 1"
    )
    assert_values(x.grad, [2, 2, 2], "the gradient on device 0")
    assert_values(y.grad, [2, 2, 2], "the gradient on device 1")
    assert backend.current_device() == 0, f"backward leaves device {backend.current_device()} current"


def test_a_failed_operator_leaves_the_current_device_alone(device: str, backend: ModuleType) -> None:
    """An operator that raises on the second device leaves the first one current."""
    x = torch.ones(2, 3, device=f"{device}:1")
    for use in (lambda: x @ x, lambda: x.view(5), lambda: torch.empty(1 << 50, device=x.device)):
        with pytest.raises(RuntimeError):
            use()
        assert backend.current_device() == 0, "an operator that raised left its device current"
