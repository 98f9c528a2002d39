"""Telling torch.distributed that there is a backend for the device."""

import functools
from typing import TYPE_CHECKING

from torch_backend.compat import c10d_backend_names, c10d_default_backend
from torch_backend.compat.after_import import OnImport

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Backend, Store


def backend_name(device: str) -> str:
    """What the backend for the device type ``device`` is called: ``"<device>ccl"``, as in nccl and xccl."""
    return f"{device}ccl"


def register(device: str) -> list[OnImport]:
    """Make :func:`backend_name` the backend of ``device``'s tensors, unless another one is registered for them.

    Once per process, when the device is activated. Makes no process group and loads nothing; does nothing where torch
    was built without torch.distributed. Returns what is left to do when the modules that need it are imported.
    """
    import torch.distributed as dist

    from torch_backend import _C

    if not dist.is_available() or not _C.has_distributed:
        return []
    name = backend_name(device)
    if name in dist.Backend.backend_list:
        return []
    # A list: up to torch 2.13 a string would be taken for a list of letters.
    dist.Backend.register_backend(name, functools.partial(_create, name), devices=[device])
    c10d_default_backend.replace(name)
    c10d_backend_names.replace(device, name)
    return [OnImport("torch.distributed.tensor", _share_attention)]


def _share_attention() -> None:
    from torch_backend.distributed import attention

    attention.register_shardings()
    attention.register_context_parallel()


def _create(name: str, store: "Store", rank: int, size: int, timeout: "timedelta") -> "Backend":
    """Called by torch.distributed, in every rank of a new group."""
    from torch_backend.distributed.creation import create

    return create(name, store, rank, size, timeout)
