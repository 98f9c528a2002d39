"""DistributedDataParallel's ``register_comm_hook``: bf16_compress_hook on the device.

PyTorch refuses the hook by its name, unless there is CUDA with NCCL, or XPU. All versions up to 2.15. May go once it
asks whether the process group can reduce bfloat16.
"""

import functools
from typing import Any

_NAMES = ("bf16_compress_hook", "bf16_compress_wrapper_hook")


def allow(name: str) -> None:
    """Let models on the device ``name`` have the hook."""
    from torch.nn.parallel import DistributedDataParallel

    original: Any = DistributedDataParallel._check_comm_hook

    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        if self.device_type == name and getattr(hook, "__name__", "") in _NAMES:

            @functools.wraps(hook)  # whose signature is checked
            def renamed() -> None: ...

            renamed.__name__ = "compress_hook"
            hook = renamed
        original(self, hook)

    DistributedDataParallel._check_comm_hook = check  # type: ignore[method-assign]
