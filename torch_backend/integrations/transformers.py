"""Hugging Face Transformers: ``Trainer``, ``pipeline``, what they ask of the device, offloaded caches, and parallelism.

Devices come from Accelerate's state, but mixed precision, memory, random states and pipelines have lists of their own,
with no way for other devices. May go once they ask torch.accelerator.
"""

from types import ModuleType

from torch_backend.integrations.library import Library


def _name_process_groups(module: ModuleType, device: str) -> None:
    module.DISTRIBUTED_BACKEND_MAP.setdefault(device, f"{device}ccl")


LIBRARY = Library(
    name="transformers",
    versions=("5", "6"),
    cuda_code={
        "transformers.cache_utils": ("Cache.update",),
        "transformers.distributed.pipeline_parallel": (),
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
    actions={"transformers.distributed.utils": _name_process_groups},
)
