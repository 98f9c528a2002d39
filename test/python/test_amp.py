"""torch.<name>.amp: torch.amp with the device filled in."""

from types import ModuleType

import torch
from fixtures import BuildPlugin, RunPython


def test_supported_dtypes(backend: ModuleType) -> None:
    supported = backend.get_amp_supported_dtype()
    assert supported == backend.amp.get_amp_supported_dtype()
    assert set(supported) <= set(backend.get_device_properties().dtypes)
    assert backend.amp.is_autocast_available()


def test_autocast(backend: ModuleType, name: str) -> None:
    for dtype in backend.get_amp_supported_dtype():
        with backend.amp.autocast(dtype=dtype):
            assert torch.is_autocast_enabled(name)
            assert torch.get_autocast_dtype(name) is dtype
    with backend.amp.autocast(enabled=False):
        assert not torch.is_autocast_enabled(name)
    assert not torch.is_autocast_enabled(name)


def test_grad_scaler(backend: ModuleType, name: str) -> None:
    scaler = backend.amp.GradScaler(init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    assert scaler.scale(torch.ones((), device=name)).item() == 8.0
    expected = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 0}
    assert scaler.state_dict() == expected
    assert not backend.amp.GradScaler(enabled=False).is_enabled()


def test_the_default_dtype_is_one_that_the_device_has(build_plugin: BuildPlugin, run_python: RunPython) -> None:
    run_python(
        """
        import torch, torch_backend
        torch_backend.activate("acme")
        assert torch.get_autocast_dtype("acme") is torch.float16  # the driver was not asked yet
        x = torch.ones(2, 2, device="acme")
        assert torch.get_autocast_dtype("acme") is torch.bfloat16
        with torch.autocast("acme"):
            assert (x @ x).dtype is torch.bfloat16
        """,
        env={"TORCH_BACKEND_PATH": build_plugin("NO_FLOAT16").parent},
        warnings=["error"],
    )
