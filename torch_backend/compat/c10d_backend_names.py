"""c10d's ``BackendConfig``: "gloo" and "nccl" name the backend of the device's tensors, as they do for CUDA's.

PyTorch has a table of the devices that each of its backends serves. In it Gloo serves CUDA's tensors, and no device's
from outside; "nccl" is for CUDA's alone, and fails where torch sees no GPU of CUDA's. The device's backend, which uses
Gloo where the device library has no collectives of its own, takes their place for its tensors. All versions up to 2.15.
May go once the table can be extended, and if programs stop to write "nccl".
"""

import functools
from typing import Any


def replace(device: str, name: str) -> None:
    """Let "gloo" and, where NCCL has nothing to serve, "nccl" mean the backend ``name`` for tensors of ``device``."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    original: Any = c10d.BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self: Any, backend: Any) -> None:
        original(self, backend)
        backends = self.device_backend_map
        if backends.get("cuda") == "nccl" and not (dist.is_nccl_available() and torch.cuda.is_available()):
            backends.setdefault(device, name)
            del backends["cuda"]
            # What the main backend of a group with that name is looked for as.
            c10d.Backend.backend_type_map["nccl"] = c10d.ProcessGroup.BackendType.CUSTOM
        elif str(backend).lower() == "gloo":
            # Not CUDA's as well: a group that is bound to a device takes one backend of a kind.
            self.device_backend_map = backends = {"cpu": backends["cpu"], device: name}
        if backends.get(device) in ("gloo", "nccl"):
            backends[device] = name

    c10d.BackendConfig.__init__ = __init__  # type: ignore[method-assign]
    if vars(c10d)["default_pg_nccl_timeout"] is None:  # else "nccl" is warned of
        vars(c10d)["default_pg_nccl_timeout"] = vars(c10d)["default_pg_timeout"]
        _log_errors_without_nccl()


def _log_errors_without_nccl() -> None:
    """The log of an error in a group called "nccl" asks for NCCL's version, and that error would hide the first."""
    from torch.distributed import c10d_logger

    original: Any = c10d_logger._get_msg_dict

    @functools.wraps(original)
    def describe(func_name: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            return original(func_name, *arguments, **keywords)
        except AttributeError:
            return {"func_name": func_name}

    c10d_logger._get_msg_dict = describe
