"""Devices whose memory is the host's, of which a library may not take all that the device has."""

from typing import Any


def share_of_memory(device: str) -> float:
    """How much of the memory of devices of the type ``device`` a library may take by default, as a share of all of it.

    1 where it is the device's own. Else half of what the host has available now, which others need too; a quarter of
    all of it where psutil, which knows that, is not installed.
    """
    import torch

    module: Any = torch.get_device_module(device)
    properties = module.get_device_properties()
    if "HOST_ACCESS" not in properties.capabilities or not properties.total_memory:
        return 1.0
    try:
        import psutil
    except ImportError:
        return 0.25
    share: float = psutil.virtual_memory().available / 2 / properties.total_memory
    return min(1.0, share)
