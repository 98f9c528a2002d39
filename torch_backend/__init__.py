"""torch_backend brings a new accelerator to PyTorch through one small device library.

``import torch`` is enough once a vendor's plugin is installed, or with ``TORCH_BACKEND=<name>`` in the environment::

    import torch
    x = torch.ones(3, device="xcpu")

The functions here are for those who want to choose at run time: :func:`discover` lists what there is, :func:`load`
opens a device library, :func:`activate` makes one the process's device, :func:`active` names it. :func:`explain` says
how an operator runs on it.

Importing this package activates nothing and does not import torch, so that tools which need neither (header paths, the
tests of a bare device library) start at once. The names below are looked up on first use.
"""

import importlib
from typing import TYPE_CHECKING

from torch_backend.version import __version__

__all__ = [
    "Candidate",
    "Plugin",
    "PythonDevice",
    "__version__",
    "activate",
    "active",
    "autocast",
    "custom_ops",
    "declarations",
    "define_operator",
    "device_function",
    "device_module",
    "discover",
    "distributed",
    "explain",
    "fallback",
    "kernel",
    "leaks",
    "load",
    "load_operators",
    "metadata",
    "operators",
    "ops",
    "python_device",
    "reroute",
    "reroutes",
    "triton",
]

if TYPE_CHECKING:
    from torch_backend import (
        autocast,
        custom_ops,
        declarations,
        device_module,
        distributed,
        fallback,
        leaks,
        metadata,
        operators,
        ops,
        python_device,
        triton,
    )
    from torch_backend._C import Plugin
    from torch_backend.custom_ops import define_operator, load_operators
    from torch_backend.devices.activation import activate, active
    from torch_backend.devices.discovery import Candidate, discover
    from torch_backend.devices.loading import load
    from torch_backend.devices.vendor_functions import device_function
    from torch_backend.operators import explain
    from torch_backend.operators.python_kernels import kernel
    from torch_backend.operators.rerouting import reroute, reroutes
    from torch_backend.python_device import PythonDevice
else:
    _HOMES = {
        "Candidate": "torch_backend.devices.discovery",
        "PythonDevice": "torch_backend.python_device",
        "activate": "torch_backend.devices.activation",
        "active": "torch_backend.devices.activation",
        "define_operator": "torch_backend.custom_ops",
        "device_function": "torch_backend.devices.vendor_functions",
        "discover": "torch_backend.devices.discovery",
        "explain": "torch_backend.operators",
        "kernel": "torch_backend.operators.python_kernels",
        "load": "torch_backend.devices.loading",
        "load_operators": "torch_backend.custom_ops",
        "reroute": "torch_backend.operators.rerouting",
        "reroutes": "torch_backend.operators.rerouting",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name == "Plugin":
            from torch_backend.files import native

            native.require()
            value = importlib.import_module("torch_backend._C").Plugin
        elif name in __all__:
            value = importlib.import_module(f"torch_backend.{name}")
        else:
            raise AttributeError(f"module 'torch_backend' has no attribute '{name}'")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
