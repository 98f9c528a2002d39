"""vLLM's worker and model runner, whose functions that name CUDA mean the device (see :mod:`..vllm`)."""

import contextlib

from vllm.platforms import current_platform
from vllm.platforms.interface import Platform
from vllm.v1.worker.gpu_worker import Worker


class DeviceWorker(Worker):
    """A process's part of the engine: one device, its weights and its cache."""

    def init_device(self) -> None:
        """Choose this process's device, and make the model runner."""
        if not hasattr(Platform, "register_triton_kernel_overrides"):  # nobody calls it before vLLM 0.31
            current_platform.register_triton_kernel_overrides()
        super().init_device()

    def _maybe_get_memory_pool_context(self, tag: str) -> contextlib.AbstractContextManager[None]:
        """Memory that sleeping gives back is made of CUDA's virtual memory."""
        return contextlib.nullcontext()
