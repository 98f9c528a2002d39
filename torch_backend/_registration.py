"""The Python side of registering a device with PyTorch: names, ``torch.<name>``, methods."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from torch_backend import _processes, _repairs, compile, distributed

if TYPE_CHECKING:
    from torch_backend._C import Plugin

_UNNAMED = "privateuseone"


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
    """Everything PyTorch wants from Python for ``plugin``'s device, which is registered natively. Once per process."""
    import torch
    from torch.utils import backend_registration

    name = plugin.name
    module = importlib.import_module("torch_backend.backend")
    # First the names, which everything else looks up, then torch.<name>, which the methods and the first tensor need.
    backend_registration.rename_privateuse1_backend(name)
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    _alias_submodules(name)
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _forget_cached_devices()
    distributed.register(name)
    _repairs.repair_dlpack_device(name)
    _repairs.tell_tracing_of_convolutions(name)
    _repairs.register_graphsafe_rng(name)
    _repairs.run_backward_where_it_is_called(plugin)
    _repairs.end_autograd_with_process()
    _repairs.end_profile_with_process()
    _processes.register(name)
    compile.register(name)


def _alias_submodules(name: str) -> None:
    # `import torch.<name>.memory` would otherwise find the file through the package's __path__ and run it twice.
    package = "torch_backend.backend"
    for submodule in ("_utils", "amp", "devices", "graphs", "memory", "random", "streams", "sync_debug"):
        module: ModuleType = importlib.import_module(f"{package}.{submodule}")
        sys.modules[f"torch.{name}.{submodule}"] = module
    importlib.import_module(package).__name__ = f"torch.{name}"  # where torch.get_device_module's tracer looks it up


def _forget_cached_devices() -> None:
    # Both remember what they were asked before the device was there: the module of "no accelerator" is torch.cpu.
    import torch

    for function in (torch.get_device_module, getattr(torch.accelerator, "get_device_capability", None)):
        clear = getattr(function, "cache_clear", None)
        if clear is not None:
            clear()
