"""Lightning and Fabric: ``accelerator="auto"``, ``"gpu"`` or the device's name, with every strategy and precision.

Lightning lets others register accelerators, but "auto" never chooses those, and the plugins for mixed precision and
FSDP refuse them. So its accelerator for CUDA becomes that of the device, under the device's name. May go once those
lists are gone. The same code is also installed under two older names, ``pytorch_lightning`` and ``lightning_fabric``.
"""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType

from torch_backend.compat import cuda_code
from torch_backend.integrations.library import Library

Action = Callable[[ModuleType, str], None]

_FABRIC: Mapping[str, Sequence[str]] = {
    "accelerators.cuda": (),
    "connector": (),
    "plugins.precision.fsdp": (),
    "strategies.ddp": (),
    "strategies.fsdp": (),
    "strategies.model_parallel": (),
    "strategies.strategy": (),
    "strategies.launchers.multiprocessing": (),
    "utilities.device_dtype_mixin": ("_DeviceDtypeModuleMixin.device",),
    "utilities.device_parser": (),
    "utilities.distributed": (),
    "utilities.seed": (),
    "utilities.throughput": ("get_available_flops",),
}
_PYTORCH: Mapping[str, Sequence[str]] = {
    "accelerators.cuda": (),
    "callbacks.throughput_monitor": (),
    "core.module": ("LightningModule.on_gpu",),
    "core.saving": (),
    "plugins.precision.fsdp": (),
    "profilers.pytorch": ("PyTorchProfiler._default_activities", "PyTorchProfiler._create_profilers"),
    "strategies.ddp": (),
    "strategies.fsdp": (),
    "strategies.model_parallel": (),
    "strategies.strategy": (),
    "trainer.connectors.accelerator_connector": (),
    "trainer.connectors.checkpoint_connector": (),
    "trainer.setup": (),
    "utilities.memory": (),
}


def _rename(module: ModuleType, device: str) -> None:
    """The registry has the accelerator under the device's name, also if it was filled before."""
    registry = getattr(module, "AcceleratorRegistry", None) or module.ACCELERATOR_REGISTRY
    if device not in registry:
        registry.remove("cuda")
        module.CUDAAccelerator.register_accelerators(registry)


def _add_method(module: ModuleType, device: str) -> None:
    """A module that is moved with its method of the device's name says where it is, as after ``cuda()``."""
    mixin = module._DeviceDtypeModuleMixin
    move = mixin.cuda
    code = cuda_code.retargeted(move.__code__, device)
    setattr(mixin, device, FunctionType(code, move.__globals__, device, move.__defaults__, move.__closure__))


def adapted(name: str, *, fabric: str = "", pytorch: str = "") -> Library:
    """The library called ``name``, which has Fabric's modules, Lightning's or both in the packages of these names."""
    parts = [(package, code) for package, code in ((fabric, _FABRIC), (pytorch, _PYTORCH)) if package]
    actions: dict[str, Action] = {f"{package}.accelerators": _rename for package, _ in parts}
    if fabric:
        actions[f"{fabric}.utilities.device_dtype_mixin"] = _add_method
    return Library(
        name=name,
        versions=("2.5", "3"),
        cuda_code={f"{package}.{module}": names for package, code in parts for module, names in code.items()},
        actions=actions,
    )


LIBRARY = adapted("lightning", fabric="lightning.fabric", pytorch="lightning.pytorch")
