"""Telling torch.distributed that there is a backend for the device."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Backend, Store


def backend_name(device: str) -> str:
    """What the backend for the device type ``device`` is called: ``"<device>ccl"``, as in nccl and xccl."""
    return f"{device}ccl"


def register(device: str) -> None:
    """Make :func:`backend_name` the backend of ``device``'s tensors, unless another one is registered for them.

    Once per process, when the device is activated. Makes no process group and loads nothing; does nothing where torch
    was built without torch.distributed.
    """
    import torch.distributed as dist

    from torch_backend import _C

    if not dist.is_available() or not _C.has_distributed:
        return
    name = backend_name(device)
    if name in dist.Backend.backend_list:
        return
    # A list: up to torch 2.13 a string would be taken for a list of letters.
    dist.Backend.register_backend(name, functools.partial(_create, name), devices=[device])
    _repair_default_backend(name)


def _create(name: str, store: "Store", rank: int, size: int, timeout: "timedelta") -> "Backend":
    """Called by torch.distributed, in every rank of a new group."""
    from torch_backend.distributed.creation import create

    return create(name, store, rank, size, timeout)


def _repair_default_backend(name: str) -> None:
    """Let groups that use the backend ``name`` know that it is their main one.

    Up to torch 2.13 a group without an explicit backend takes Gloo for that, and one with several backends none, even
    if it has none of that type: DistributedDataParallel then finds no backend.
    """
    from torch.distributed import distributed_c10d as c10d

    if hasattr(c10d, "_get_default_backend_type_for_backend_config"):
        return  # asks the accelerator's backend
    original: Callable[..., Any] = c10d._new_process_group_helper

    @functools.wraps(original)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        group = result[0]
        if type(group) is c10d.ProcessGroup:
            backends = c10d._world.pg_backend_config.get(group, "").split(",")
            if any(entry.endswith(f":{name}") for entry in backends):
                group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        return result

    c10d._new_process_group_helper = new_process_group
