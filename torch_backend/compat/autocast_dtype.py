"""The default dtype of ``torch.autocast`` for a device without float16: bfloat16.

PyTorch's default for out-of-tree devices is float16, and autocast to a dtype that is not supported does nothing but
warn. All versions up to 2.15; a setting of PyTorch's own, ``torch.set_autocast_dtype``. May go once PyTorch asks the
device.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch


def choose(name: str, dtypes: "Collection[torch.dtype]") -> None:
    """Cast to bfloat16 by default on the device ``name`` if ``dtypes``, those it has, lack float16.

    The default belongs to a thread: this is for the one that starts the driver, the others say ``dtype=``.
    """
    import torch

    chosen = torch.get_autocast_dtype(name)
    if chosen is torch.float16 and chosen not in dtypes and torch.bfloat16 in dtypes:
        torch.set_autocast_dtype(name, torch.bfloat16)
