"""Making a device PyTorch's: the steps of activation, in their order."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from torch_backend import compile, distributed, integrations, triton
from torch_backend.compat import (
    after_import,
    autograd_exit,
    autograd_multithreading,
    bf16_hook,
    cached_devices,
    convolution_format,
    data_parallel,
    dlpack_device,
    forking_pickler,
    grad_scaler,
    meta_kernels,
    profiler_exit,
    tensor_metadata,
)
from torch_backend.devices import loading

if TYPE_CHECKING:
    from torch_backend._C import Plugin

_UNNAMED = "privateuseone"
_SUBMODULES = (
    "_utils",
    "amp",
    "devices",
    "graphs",
    "memory",
    "nvtx",
    "profiler",
    "random",
    "streams",
    "sync_debug",
    "telemetry",
    "typed_tensors",
)


def check_slot(name: str) -> None:
    """Raise RuntimeError if something else than the device ``name`` has this process's slot for out-of-tree devices."""
    import torch

    taken_by = torch._C._get_privateuse1_backend_name()
    if taken_by not in (_UNNAMED, name):
        raise RuntimeError(
            f"PyTorch's one slot for out-of-tree devices was taken by '{taken_by}', which is not a device of "
            f"torch_backend, so '{name}' cannot be activated. Do not import the package of '{taken_by}' in this "
            "process."
        )


def check_name(name: str) -> None:
    """Raise RuntimeError if PyTorch can have no out-of-tree device called ``name``, because it uses the name itself."""
    import torch

    holders: list[tuple[object, str]] = [
        (torch, "torch"),
        (torch.Tensor, "torch.Tensor"),
        (torch.nn.Module, "torch.nn.Module"),
        (torch.nn.utils.rnn.PackedSequence, "torch.nn.utils.rnn.PackedSequence"),
        (torch.storage._StorageBase, "torch.UntypedStorage"),
        (torch.storage.TypedStorage, "torch.storage.TypedStorage"),
    ]
    for holder, where in holders:
        for attribute in (name,) if holder is torch else (name, f"is_{name}"):
            if hasattr(holder, attribute):
                raise RuntimeError(
                    f"The device name '{name}' cannot be used: {where}.{attribute} exists already. The plugin has to "
                    "choose another name."
                )


def register(plugin: "Plugin") -> None:
    """Make ``plugin``'s device PyTorch's: natively first, then everything that it wants from Python. Once per process.

    Raises RuntimeError if that cannot be. Whatever is checked is checked before anything is registered.
    """
    check_slot(plugin.name)
    check_name(plugin.name)
    import torch_backend.device_module  # noqa: F401  # if this fails nothing is registered yet
    from torch_backend import _C

    _C.activate(plugin)
    try:
        _register_in_python(plugin)
    except Exception as error:
        raise RuntimeError(
            f"PyTorch knows the device '{plugin.name}', but its Python side could not be completed: {error}. "
            "This process cannot use the device; start a new one."
        ) from error


def _register_in_python(plugin: "Plugin") -> None:
    """The steps, in their order; each room says what has to wait until somebody imports a module."""
    name = plugin.name
    # First the names, which everything else looks up, then torch.<name>, which the methods and the first tensor need.
    _add_device_module(name)
    waiting = [*distributed.register(name), *triton.on_import(name), *compile.register(name)]
    cached_devices.forget()
    dlpack_device.replace(name)
    convolution_format.replace(name)
    data_parallel.replace(name)
    meta_kernels.register()
    bf16_hook.allow(name)
    grad_scaler.choose(name)
    tensor_metadata.replace(name)
    autograd_multithreading.switch_off(plugin)
    autograd_exit.end_threads_with_process()
    profiler_exit.end_profile_with_process()
    waiting += integrations.register(name)
    forking_pickler.register(forking_pickler.Place(name, plugin.path, dict(loading.options_of(plugin))))
    for each in waiting:
        after_import.after_import(*each)


def _add_device_module(name: str) -> None:
    import torch
    from torch.utils import backend_registration

    backend_registration.rename_privateuse1_backend(name)
    module = importlib.import_module("torch_backend.device_module")
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    _alias_submodules(name)
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )


def _alias_submodules(name: str) -> None:
    # `import torch.<name>.memory` would otherwise find the file through the package's __path__ and run it twice.
    package = "torch_backend.device_module"
    for submodule in _SUBMODULES:
        module: ModuleType = importlib.import_module(f"{package}.{submodule}")
        sys.modules[f"torch.{name}.{submodule}"] = module
    import torch

    backends = importlib.import_module(f"{package}.backends")
    sys.modules[f"torch.backends.{name}"] = backends
    setattr(torch.backends, name, backends)
    importlib.import_module(package).__name__ = f"torch.{name}"  # where torch.get_device_module's tracer looks it up
