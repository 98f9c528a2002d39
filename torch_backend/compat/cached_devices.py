"""``torch.get_device_module`` and ``torch.accelerator.get_device_capability`` ask again once the device is there.

Both remember what they were asked before: the module of "no accelerator" is torch.cpu. All versions up to 2.15,
whichever of the two remember. May go once they do not remember the absence of a device.
"""


def forget() -> None:
    """Let them forget."""
    import torch

    for function in (torch.get_device_module, getattr(torch.accelerator, "get_device_capability", None)):
        clear = getattr(function, "cache_clear", None)
        if clear is not None:
            clear()
