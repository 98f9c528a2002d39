"""What the hardware is doing, with the names of torch.cuda's.

The vendor's package brings what is known, each as a :func:`torch_backend.device_function` with that name. Otherwise
NotImplementedError, a RuntimeError, says so, as torch.cuda raises where NVML is missing.
"""

from typing import NoReturn

import torch
from torch.types import Device

from torch_backend.device_module._utils import _device_type, _existing_device_index
from torch_backend.device_module.memory import mem_get_info

__all__ = [
    "clock_rate",
    "device_memory_used",
    "list_gpu_processes",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]


def device_memory_used(device: Device = None) -> int:
    """Bytes in use on ``device`` by all processes, as its driver sees them. Raises as mem_get_info does."""
    free, total = mem_get_info(device)
    return total - free


def utilization(device: Device = None) -> int:
    """The percentage of time with work. Raises NotImplementedError."""
    _refuse("how busy it is", device)


def memory_usage(device: Device = None) -> int:
    """The percentage of time with accesses to memory. Raises NotImplementedError."""
    _refuse("how busy its memory is", device)


def temperature(device: Device = None) -> int:
    """Degrees Celsius. Raises NotImplementedError."""
    _refuse("its temperature", device)


def power_draw(device: Device = None) -> int:
    """Milliwatts. Raises NotImplementedError."""
    _refuse("the power that it draws", device)


def clock_rate(device: Device = None) -> int:
    """Megahertz. Raises NotImplementedError."""
    _refuse("its clock rate", device)


def list_gpu_processes(device: Device = None) -> str:
    """The processes that use the device. Raises NotImplementedError."""
    _refuse("which processes use it", device)


def _refuse(what: str, device: torch.device | str | int | None) -> NoReturn:
    where = f"{_device_type()}:{_existing_device_index(device)}"
    raise NotImplementedError(
        f"{where} does not say {what}: its package brings no function for it (torch_backend.device_function). Use the "
        "vendor's own tools. mem_get_info() and get_device_properties() have what is known."
    )
