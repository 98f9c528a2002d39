"""safetensors: the device's name in ``load_file``, ``load_model`` and ``safe_open``.

They refuse names that are not in a list, but take a number for a device of PyTorch's accelerator, whatever its name: so
the name is turned into the number. May go once safetensors takes every name that torch.device does.
"""

import sys
from types import ModuleType
from typing import Any

from torch_backend.integrations.library import Library


def _take_names(module: ModuleType, device: str) -> None:
    import torch

    original = module.safe_open
    if getattr(original, "_torch_backend", False):
        return

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class safe_open(metaclass=Kind):
        __doc__ = original.__doc__
        _torch_backend = True

        def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
            return original(filename, framework, device=number_of(device), **options)

    def number_of(where: Any) -> Any:
        if isinstance(where, (str, torch.device)) and str(where).partition(":")[0] == device:
            index = torch.device(where).index
            return torch.accelerator.current_device_index() if index is None else index
        return where

    for user in list(sys.modules.values()):  # who has imported the name already
        if vars(user).get("safe_open") is original if isinstance(user, ModuleType) else False:
            user.safe_open = safe_open  # type: ignore[attr-defined]


LIBRARY = Library(name="safetensors", versions=("0.5", "1"), actions={"safetensors": _take_names})
