"""c10d's ``_new_process_group_helper``: process groups know that the device's backend is their main one.

Up to torch 2.13 a group without an explicit backend takes Gloo for that, and one with several backends none, even if it
has none of that type: DistributedDataParallel then finds no backend. Later versions ask the accelerator's backend, in
``_get_default_backend_type_for_backend_config``, which is what is looked for. May go with torch 2.13.
"""

import functools
from collections.abc import Callable
from typing import Any


def replace(name: str) -> None:
    """Let new groups that use the backend ``name`` know, if this version of torch does not tell them."""
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
