"""torch.<name>.amp and torch.autocast on the device."""

from types import ModuleType

import pytest
import torch


def test_supported_dtypes(backend: ModuleType) -> None:
    supported = backend.get_amp_supported_dtype()
    assert supported == backend.amp.get_amp_supported_dtype()
    assert set(supported) <= set(backend.get_device_properties().dtypes)
    assert backend.amp.is_autocast_available()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(backend: ModuleType, name: str, dtype: torch.dtype) -> None:
    if dtype not in backend.get_amp_supported_dtype():
        pytest.skip(f"the device has no {dtype}")
    x = torch.ones(4, 4, device=name)
    for context in (backend.amp.autocast(dtype=dtype), torch.autocast(name, dtype=dtype)):
        with context:
            assert torch.is_autocast_enabled(name)
            assert (x @ x).dtype is dtype
    with backend.amp.autocast(enabled=False):
        assert (x @ x).dtype is torch.float32


def test_grad_scaler(backend: ModuleType, name: str) -> None:
    scaler = backend.amp.GradScaler(init_scale=8.0)
    parameter = torch.ones(3, device=name, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0.5] * 3
    assert scaler.get_scale() == 8.0
