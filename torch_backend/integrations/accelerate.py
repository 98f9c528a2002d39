"""Hugging Face Accelerate: ``Accelerator()``, ``device_map``, ``accelerate launch`` and ranks under torchrun.

Accelerate has a chain of ``is_..._available()`` for each purpose, which ends with CUDA. Its documented way for other
devices, ``ACCELERATE_TORCH_DEVICE``, covers one process without mixed precision, and no device map. May go once
Accelerate asks torch.accelerator.
"""

from types import ModuleType
from typing import Any

from torch_backend.integrations.library import Library

_SCRIPT = "accelerate.test_utils.scripts.test_script"


def _name_random_states(module: ModuleType, device: str) -> None:
    """``rng_types`` takes the device's name; what it does for CUDA's generators it does for the device's."""
    module.RNGType._value2member_map_.setdefault(device, module.RNGType.CUDA)


def _test_on(module: Any, device: str) -> None:
    """What ``accelerate test`` and tests of libraries are told: the module has asked while it was imported."""
    module.torch_device, module.device_count, module.memory_allocated_func = module.get_backend()
    module.DEFAULT_LAUNCH_COMMAND = module.get_launch_command(num_processes=module.device_count, monitor_interval=0.1)


def _test_as_module(module: Any, device: str) -> None:
    """``accelerate test`` starts its script as a module, whose code names the device by then, and not as a file."""
    start = module.execute_subprocess_async
    module.execute_subprocess_async = lambda command: start([*command[:-1], "--module", _SCRIPT])


LIBRARY = Library(
    name="accelerate",
    versions=("1.10", "2"),
    cuda_code={
        "accelerate.state": (
            "PartialState.__init__",
            "PartialState.default_device",
            "PartialState._prepare_backend",
            "PartialState.set_device",
        ),
        "accelerate.accelerator": ("Accelerator.__init__",),
        "accelerate.checkpointing": (),
        "accelerate.big_modeling": ("dispatch_model",),
        "accelerate.launchers": (),
        "accelerate.commands.launch": (),
        _SCRIPT: (),
        "accelerate.test_utils.testing": (),
        "accelerate.utils.dataclasses": (),
        # Not those about the cores that are near to a GPU, which ask NVIDIA's and AMD's libraries.
        "accelerate.utils.environment": ("get_current_device_type", "check_cuda_fp8_capability"),
        "accelerate.utils.fsdp_utils": (),
        "accelerate.utils.imports": ("is_cuda_available", "is_bf16_available"),
        "accelerate.utils.memory": (),
        "accelerate.utils.modeling": ("get_max_memory", "get_balanced_memory", "get_grad_scaler"),
        "accelerate.utils.operations": (),
        "accelerate.utils.random": (),
    },
    actions={
        "accelerate.commands.test": _test_as_module,
        "accelerate.test_utils.testing": _test_on,
        "accelerate.utils.dataclasses": _name_random_states,
    },
)
