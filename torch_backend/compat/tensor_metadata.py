"""``torch._utils.set_tensor_metadata``: the device's tensors keep what it is given, also when a file is loaded.

PyTorch drops it in silence until somebody registers how it is kept, and takes one registration a process: so that an
extension can still come with its own, ours waits until there is something to keep. All versions. May go once PyTorch
keeps it for devices without a registration.
"""

import functools
from typing import Any


def replace(name: str) -> None:
    """Keep it on tensors of the device ``name``."""
    import torch

    from torch_backend import _C

    original = torch._utils.set_tensor_metadata

    @functools.wraps(original)
    def set_tensor_metadata(tensor: Any, metadata: Any) -> None:
        if isinstance(tensor, torch.Tensor) and tensor.device.type == name:
            _C.save_tensor_metadata()
        original(tensor, metadata)  # type: ignore[no-untyped-call]

    torch._utils.set_tensor_metadata = set_tensor_metadata
