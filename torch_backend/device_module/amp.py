"""Automatic mixed precision: what the device can, and torch.amp with the device filled in."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_backend.device_module._utils import _device_type
from torch_backend.device_module.devices import get_device_properties, is_available

_AUTOCAST_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast may cast to: float16, bfloat16 and float32, as far as the device declares them.

    Starts the driver. Empty without a device.
    """
    if not is_available():
        return []
    dtypes = get_device_properties().dtypes
    return [dtype for dtype in _AUTOCAST_DTYPES if dtype in dtypes]


def is_autocast_available() -> bool:
    """Whether ``torch.autocast`` knows the device."""
    return torch.amp.is_autocast_available(_device_type())


def is_autocast_enabled() -> bool:
    """Whether autocast is on for the device, in the calling thread."""
    return torch.is_autocast_enabled(_device_type())


def set_autocast_enabled(enabled: bool) -> None:
    """Switch autocast for the device on or off, in the calling thread."""
    torch.set_autocast_enabled(_device_type(), enabled)


def get_autocast_dtype() -> torch.dtype:
    """What autocast casts to if it is told nothing, in the calling thread."""
    return torch.get_autocast_dtype(_device_type())


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Set what :func:`get_autocast_dtype` returns."""
    torch.set_autocast_dtype(_device_type(), dtype)


def amp_definitely_not_available() -> bool:
    """Whether there is no device."""
    return not is_available()


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast`` for this device. ``dtype`` None is ``torch.get_autocast_dtype`` of the device."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None
    ) -> None:
        """See :class:`torch.autocast`."""
        super().__init__(_device_type(), enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` for this device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        """See :class:`torch.amp.GradScaler`."""
        super().__init__(
            _device_type(),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd`` for this device."""
    return functools.partial(torch.amp.custom_fwd, device_type=_device_type())(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """``torch.amp.custom_bwd`` for this device."""
    return functools.partial(torch.amp.custom_bwd, device_type=_device_type())(bwd)
