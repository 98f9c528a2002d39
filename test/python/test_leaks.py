"""check_leaks: what stays in use is found, what goes is not, and the message says whose it is."""

from types import ModuleType

import pytest
import torch

from torch_backend.leaks import LeakError, check_leaks


def test_what_goes_is_no_leak(name: str) -> None:
    with check_leaks():
        x = torch.ones(1000, device=name)
        (x + x).sum().item()
        del x
        cycle: list[object] = [torch.ones(10, device=name)]
        cycle.append(cycle)
        del cycle


def test_a_leak_is_named_with_its_stack(name: str, backend: ModuleType) -> None:
    keep = []

    def allocates() -> None:
        keep.append(torch.empty(3, 500, dtype=torch.float64, device=name))

    with pytest.raises(LeakError) as caught, check_leaks():
        allocates()
    (leak,) = caught.value.leaks
    assert (leak.device, leak.address) == (0, keep[0].data_ptr())
    assert leak.size_bytes >= 12000
    assert leak.tensors == ("Tensor 3x500 torch.float64",)
    assert "allocates" in leak.frames[0]
    assert "1 allocation made inside check_leaks is still in use" in str(caught.value)
    assert not backend.memory._snapshot()["device_traces"][0], "the history that check_leaks switched on stays on"


def test_memory_reused_from_before_is_a_leak_too(name: str) -> None:
    """The address and the sums are as before: only the history tells."""
    old = torch.empty(7777, dtype=torch.uint8, device=name)
    check = check_leaks()
    check.__enter__()
    del old
    new = torch.empty(7777, dtype=torch.uint8, device=name)
    with pytest.raises(LeakError):
        check.__exit__(None, None, None)
    del new


def test_what_is_allowed(name: str) -> None:
    with check_leaks(allowed_bytes=1 << 20):
        keep = torch.empty(1000, device=name)
    del keep


def test_every_device_is_looked_at(name: str, two_devices: None) -> None:
    with pytest.raises(LeakError, match=f"on {name}:1"), check_leaks():
        keep = torch.empty(1000, device=f"{name}:1")
    del keep


def test_an_error_inside_is_not_replaced(name: str) -> None:
    keep = []

    def fails() -> None:
        keep.append(torch.empty(1000, device=name))
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), check_leaks():
        fails()


def test_a_history_that_is_recorded_goes_on(name: str, backend: ModuleType) -> None:
    backend.memory._record_memory_history()
    try:
        with pytest.raises(LeakError), check_leaks():
            keep = torch.empty(1000, device=name)
        del keep
        assert "alloc" in {entry["action"] for entry in backend.memory._snapshot()["device_traces"][0]}
    finally:
        backend.memory._record_memory_history(None)
