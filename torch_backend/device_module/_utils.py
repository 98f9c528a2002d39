"""Device arguments: which device is meant, and whether it exists."""

from typing import Any

import torch

from torch_backend import _C


def _device_type() -> str:
    """The active device's type, "xcpu". Raises RuntimeError if none is active."""
    name = torch._C._get_privateuse1_backend_name()
    if name == "privateuseone":
        raise RuntimeError(
            "No device of torch_backend is active. Set TORCH_BACKEND=<name> before Python starts, or call "
            "torch_backend.activate(name); `torch-backend list` shows what there is."
        )
    return name


def _device_count() -> int:
    return _C.device_count()


def _current_device() -> int:
    if torch.compiler.is_dynamo_compiling():
        return torch.accelerator.current_device_index()  # known to torch.compile; but in eager it starts the driver
    return _C.current_device()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that ``device`` names: an index, a string, a torch.device, or this module's ``device`` context manager.

    An index is returned as it is, without a look at whether the device exists: torch.load and others check that
    themselves, and say what it means there.

    Args:
        device: None and a device without an index mean the current device if ``optional``.
        allow_cpu: accept a CPU device, as -1.

    Raises ValueError for a device of another type, and for one without an index unless ``optional``.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        expected = _device_type()
        if device.type != expected:
            raise ValueError(f"Expected a {expected}{' or cpu' if allow_cpu else ''} device, but got '{device}'.")
        index = device.index
    elif device is None:
        index = None
    elif isinstance(getattr(device, "idx", None), int):
        index = int(device.idx)
    else:
        raise TypeError(f"Expected a device index, a string or a torch.device, but got {device!r}.")
    if index is None:
        if not optional:
            raise ValueError(f"Expected a device with an index, or an index, but got {device!r}.")
        return _current_device()
    return index


def _existing_device_index(device: Any) -> int:
    """The index of a device that exists; None is the current device. Raises IndexError if there is no such device."""
    index = _get_device_index(device, optional=True)
    count = _device_count()
    if not 0 <= index < count:
        raise IndexError(f"There is no device {_device_type()}:{index}: this process has {_describe_count(count)}.")
    return index


def _describe_count(count: int) -> str:
    name = _device_type()
    if count == 0:
        return f"no {name} devices"
    return f"one, {name}:0" if count == 1 else f"{count}, {name}:0 to {name}:{count - 1}"
