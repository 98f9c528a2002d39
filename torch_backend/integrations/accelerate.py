"""Hugging Face Accelerate: ``Accelerator()``, ``device_map``, ``accelerate launch`` and ranks under torchrun.

Accelerate has a chain of ``is_..._available()`` for each purpose, which ends with CUDA. Its documented way for other
devices, ``ACCELERATE_TORCH_DEVICE``, covers one process without mixed precision, and no device map. May go once
Accelerate asks torch.accelerator.
"""

from torch_backend.integrations.library import Library

LIBRARY = Library(
    name="accelerate",
    versions=("1.10", "2"),
    cuda_code={
        "accelerate.state": ("PartialState.default_device", "PartialState._prepare_backend", "PartialState.set_device"),
        "accelerate.accelerator": ("Accelerator.__init__",),
        "accelerate.checkpointing": (),
        "accelerate.big_modeling": ("dispatch_model",),
        "accelerate.launchers": (),
        "accelerate.commands.launch": (),
        "accelerate.utils.dataclasses": (),
        "accelerate.utils.environment": (),
        "accelerate.utils.fsdp_utils": (),
        "accelerate.utils.imports": ("is_cuda_available", "is_bf16_available"),
        "accelerate.utils.memory": (),
        "accelerate.utils.modeling": ("get_max_memory", "get_balanced_memory", "get_grad_scaler"),
        "accelerate.utils.operations": (),
        "accelerate.utils.random": (),
    },
)
