"""Hugging Face Transformers: ``Trainer``, ``pipeline``, what they ask of the device, offloaded caches, and parallelism.

``generate_batch`` and ``transformers serve`` size their cache by the device's memory, where that is the host's by what
it has to spare, and, asked for it, prepare a batch while one is computed and replay steps as graphs of the device.

Devices come from Accelerate's state, but mixed precision, memory, random states and pipelines have lists of their own,
with no way for other devices. May go once they ask torch.accelerator.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_backend import _C, device_module
from torch_backend.integrations.host_memory import share_of_memory
from torch_backend.integrations.library import Library


def _name_process_groups(module: ModuleType, device: str) -> None:
    module.DISTRIBUTED_BACKEND_MAP.setdefault(device, f"{device}ccl")


def _order_batches(module: ModuleType, device: str) -> None:
    _wait_for_inputs(module, device)
    _let_batches_overlap(module, device)


def _let_batches_overlap(module: ModuleType, device: str) -> None:
    """Also, what is filled on the current stream is there before other streams use it, which nothing else sees to."""
    buffers = module.ContinuousBatchingAsyncIOs
    buffers._supported_device_types += (device,)
    for name in ("__init__", "reset"):
        setattr(buffers, name, _then_synchronized(getattr(buffers, name)))


def _wait_for_inputs(module: ModuleType, device: str) -> None:
    """Inputs are filled on the current stream and read on another, which does not wait for the last of them.

    Batches that overlap have no such stream: they are copied from the host on one that is waited for.
    """
    buffers = module.ContinuousBatchingIOs
    arguments = buffers.get_model_kwargs

    @functools.wraps(arguments)
    def get_model_kwargs(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if self.compute_stream is not None and self.device.type == device:
            self.compute_stream.wait_stream(torch.accelerator.current_stream(self.device))
        return arguments(self, *args, **kwargs)

    buffers.get_model_kwargs = get_model_kwargs


def _then_synchronized(fills: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(fills)
    def fill(*args: Any, **kwargs: Any) -> None:
        import torch

        fills(*args, **kwargs)
        torch.accelerator.synchronize()

    return fill


def _leave_memory_to_the_host(module: Any, device: str) -> None:
    """As Transformers does on the CPU and on MPS, which it knows."""
    resolve = module.resolve_max_memory_percent

    @functools.wraps(resolve)
    def resolve_with_share(cb_config: Any, *args: Any, **kwargs: Any) -> None:
        is_default = cb_config.max_memory_percent is None
        resolve(cb_config, *args, **kwargs)
        if is_default:
            cb_config.max_memory_percent *= share_of_memory(device)

    module.resolve_max_memory_percent = resolve_with_share


def _capture_steps(module: Any, device: str) -> None:
    """Where a step can be captured: it has nothing that runs on the host."""
    if "ASYNC" not in _C.device_properties().capabilities or not _C.has_modules():
        return
    module.DEVICE_TYPE_TO_GRAPH_NAME = {**module.DEVICE_TYPE_TO_GRAPH_NAME, device: "CUDAGraph"}
    module.get_available_accelerator_module = lambda: device_module  # its own takes names that end in cpu for the CPU


LIBRARY = Library(
    name="transformers",
    versions=("5", "6"),
    cuda_code={
        "transformers.cache_utils": ("Cache.update",),
        "transformers.distributed.pipeline_parallel": (),
        "transformers.generation.continuous_batching.continuous_api": (
            "ContinuousBatchingManager._run_generation_loop",
        ),
        "transformers.generation.continuous_batching.requests": (),
        "transformers.generation.continuous_batching.utils": (),
        "transformers.utils.import_utils": ("is_torch_bf16_gpu_available",),
        "transformers.utils.type_validators": ("device_validator",),
        "transformers.training_args": ("TrainingArguments._setup_devices",),
        "transformers.trainer": ("Trainer._save_rng_state", "Trainer._load_rng_state", "Trainer.evaluation_loop"),
        "transformers.trainer_utils": (
            "TrainerMemoryTracker.__init__",
            "TrainerMemoryTracker.start",
            "TrainerMemoryTracker.stop",
        ),
        "transformers.pipelines.base": ("Pipeline.__init__", "Pipeline.device_placement", "Pipeline.__call__"),
        "transformers.integrations.accelerate": ("check_and_set_device_map", "get_max_memory"),
        "transformers.modeling_utils": ("caching_allocator_warmup",),
    },
    actions={
        "transformers.distributed.utils": _name_process_groups,
        "transformers.generation.continuous_batching.initialization": _leave_memory_to_the_host,
        "transformers.generation.continuous_batching.input_outputs": _order_batches,
        "transformers.generation.continuous_batching.utils": _capture_steps,
    },
)
