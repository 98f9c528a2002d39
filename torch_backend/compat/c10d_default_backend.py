"""c10d's ``_new_process_group_helper``: process groups know that the device's backend is their main one.

A group with a name for its backend takes that one for its main one, which for "gloo" it has not on the device
(c10d_backend_names). Up to torch 2.13 a group without an explicit backend takes Gloo, and one with several backends
none, even if it has none of that type: DistributedDataParallel then finds no backend.
"""

import functools
from collections.abc import Callable
from typing import Any


def replace(name: str) -> None:
    """Let new groups that use the backend ``name`` know."""
    from torch.distributed import distributed_c10d as c10d

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
