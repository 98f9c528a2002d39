"""Making the device of a run the active one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_backend._C import Plugin


def activate(device: str) -> "Plugin":
    """Activate ``device``, a name, the path of a device library, or "module:Class".

    Raises ValueError if there is no such device, RuntimeError if it does not work.
    """
    from torch_backend.devices.suppression import suppressed

    with suppressed():  # `import torch` alone might activate another one
        import torch
    # What a device computes is compared with the CPU's results, which are those of whole factors.
    torch.backends.cudnn.allow_tf32 = False
    from torch_backend.devices import activation, loading
    from torch_backend.files import location

    return activation.activate(loading.load(device) if location.is_path(device) else device)
