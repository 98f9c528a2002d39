"""``torch.autograd.set_multithreading_enabled``: off in the thread that activates a synchronous device.

Autograd gives every out-of-tree device a thread, so that the host can enqueue on several devices at once. A device that
has finished when a call returns gains little from that, and loses the caches of the core that ran the forward pass. All
versions up to 2.15; a setting of PyTorch's own. May go once autograd asks the device whether it wants a thread.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_backend._C import Plugin


def switch_off(plugin: "Plugin") -> None:
    """Let backward passes that this thread starts run in it, as on CPU, if the device is synchronous.

    Other threads, and whoever calls ``torch.autograd.set_multithreading_enabled(True)``, get device threads.
    """
    import torch

    if not plugin.is_async:
        torch.autograd.set_multithreading_enabled(False)
