"""torch.<name>: finding operations that make the host wait."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from fixtures import in_process


@pytest.fixture(autouse=True)
def reset(backend: ModuleType) -> Iterator[None]:
    yield
    backend.set_sync_debug_mode("default")


@pytest.mark.parametrize(("mode", "number"), [("default", 0), ("warn", 1), ("error", 2), (0, 0), (1, 1), (2, 2)])
def test_modes(backend: ModuleType, mode: int | str, number: int) -> None:
    backend.set_sync_debug_mode(mode)
    assert backend.get_sync_debug_mode() == number


@pytest.mark.parametrize("mode", ["loud", 3, -1])
def test_unknown_mode(backend: ModuleType, mode: int | str) -> None:
    with pytest.raises(ValueError, match="expected one of 'default', 'warn', 'error', or 0, 1, 2"):
        backend.set_sync_debug_mode(mode)


@in_process({"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "500"})
def test_hidden_waits() -> None:
    x = torch.ones(1, device="xcpu")
    pinned = torch.empty(1, pin_memory=True)
    y = torch.ones(100_000, device="xcpu")
    uses = (x.item, x.cpu, *[y.cpu] * 20, lambda: x.copy_(torch.ones(1)), lambda: bool(x > 0))
    torch.xcpu.set_sync_debug_mode("error")
    for use in uses:
        with pytest.raises(RuntimeError, match=r"Called a synchronizing operation: .*set_sync_debug_mode"):
            use()
    pinned.copy_(x, non_blocking=True)
    torch.xcpu.set_sync_debug_mode("warn")
    for use in uses:
        with pytest.warns(UserWarning, match="Called a synchronizing operation"):
            use()
    torch.xcpu.set_sync_debug_mode("default")
    assert x.item() == pinned.item() == 1


def test_explicit_waits_are_fine(backend: ModuleType, name: str) -> None:
    x = torch.ones(4, device=name)
    backend.set_sync_debug_mode("error")
    x.add_(1)
    backend.synchronize()
    backend.current_stream().synchronize()
