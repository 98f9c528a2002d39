"""Making the backend of one process group."""

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

    Raises RuntimeError if torch was built without Gloo, and DistBackendError if the ranks do not find each other.
    """
    return _C.HostBackend(name, _gloo(store, rank, size, timeout), timeout, _gloo)


def _gloo(store: "Store", rank: int, size: int, timeout: timedelta) -> "Backend":
    if not dist.is_gloo_available():
        raise RuntimeError(
            "The device library has no collectives of its own, and this torch was built without Gloo, which would do "
            "them on the host. Install a torch with Gloo (those from PyTorch's package index have it)."
        )
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
