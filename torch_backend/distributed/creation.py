"""Making the backend of one process group."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from torch_backend import _C

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, Store


def create(name: str, store: "Store", rank: int, size: int, timeout: timedelta) -> "Backend":
    """The backend of one rank of a group, connected with the other ranks.

    Args:
        name: what the backend is registered as.
        store: the group's own.
        rank: of this process in the group.
        size: number of ranks.
        timeout: how long a collective may take.

    The device library's own collectives (``ccl.1``) do the work, or Gloo if it has none. The environment variable
    ``TORCH_BACKEND_COLLECTIVES`` picks one: ``device`` or ``host``.

    Raises RuntimeError if what is picked is not there, and DistBackendError if the ranks do not find each other.
    """
    make_gloo = None if _uses_device_collectives() else _gloo
    return _C.DeviceBackend(name, store, rank, size, timeout, make_gloo)


def _uses_device_collectives() -> bool:
    picked = os.environ.get("TORCH_BACKEND_COLLECTIVES", "")
    if picked not in ("", "device", "host"):
        raise ValueError(f"TORCH_BACKEND_COLLECTIVES is {picked!r}; it can be 'device' or 'host'.")
    offered = _C.has_device_collectives()
    if picked == "device" and not offered:
        raise RuntimeError(
            "TORCH_BACKEND_COLLECTIVES=device asks for the device library's own collectives, but it offers none "
            "(the table ccl.1). Unset the variable."
        )
    return offered and picked != "host"


def _gloo(store: "Store", rank: int, size: int, timeout: timedelta) -> "Backend":
    if not dist.is_gloo_available():
        raise RuntimeError(
            "This torch was built without Gloo, which would do the device's collectives on the host. Install a torch "
            "with Gloo (those from PyTorch's package index have it), or use a device library with collectives of its "
            "own."
        )
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
