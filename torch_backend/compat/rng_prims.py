"""``run_and_save_rng_state`` and ``run_with_rng_state``: a compiled backward pass computes random operators again.

They save the generator's state before the operator and restore it for the second time, with a list of the devices they
do that for. From torch 2.13 on the compiler takes the generator's graph-safe state for the devices that say so in
``register_graphsafe_rng_device_type``, but not in graphs that draw on several of them, nor if
``torch._functorch.config.graphsafe_rng_functionalization`` is off, as it is for Inductor, whose code has such states of
CUDA alone. May go when that list can be added to.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims import rng_prims
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
from torch.utils import _pytree

DeviceOf = Callable[[Any, tuple[Any, ...], dict[str, Any]], torch.device | None]
"""The device that an operator draws random numbers on when it is called so; None: PyTorch knows it."""


def register(name: str, draws_there: Callable[[Any], bool]) -> None:
    """Put the device ``name`` on that list. Once per process.

    ``draws_there``: whether an operator draws on the current device of that name, wherever its tensors are.
    """

    def device_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
        if draws_there(op):
            return torch.device(name, torch.get_device_module(name).current_device())
        named = kwargs.get("device")
        devices = [torch.device(named)] if named else [arg.device for arg in args if isinstance(arg, torch.Tensor)]
        return next((device for device in devices if device.type == name), None)

    _extend_saving(device_of)
    _extend_restoring(device_of)


def _extend_saving(device_of: DeviceOf) -> None:
    operator: Any = rng_prims.run_and_save_rng_state
    others = operator.py_kernels[DispatchKey.BackendSelect]

    def run(op: Any, *args: Any, **kwargs: Any) -> Any:
        device = device_of(op, args, kwargs)
        if device is None:
            return others(op, *args, **kwargs)
        return torch.get_device_module(device).get_rng_state(device), op(*args, **kwargs)

    def run_fake(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return run(op, *args, **kwargs)

    def trace(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(op, *args, **kwargs)
        proxies = _pytree.tree_map(mode.tracer.unwrap_proxy, ((op, *args), kwargs))
        proxy = mode.tracer.create_proxy("call_function", operator, *proxies)
        return track_tensor_tree(result, proxy, constant=None, tracer=mode.tracer)

    operator.py_kernels[DispatchKey.BackendSelect] = run
    operator.python_key_table[FakeTensorMode] = run_fake
    operator.python_key_table[ProxyTorchDispatchMode] = trace
    operator._dispatch_cache.clear()


def _extend_restoring(device_of: DeviceOf) -> None:
    operator: Any = rng_prims.run_with_rng_state
    others = operator.py_kernels[DispatchKey.BackendSelect]

    def run(rng_state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        device = device_of(op, args, kwargs)
        if device is None:
            return others(rng_state, op, *args, **kwargs)
        now = torch.get_device_module(device).get_rng_state(device)
        torch.get_device_module(device).set_rng_state(rng_state, device)
        try:
            return op(*args, **kwargs)
        finally:
            torch.get_device_module(device).set_rng_state(now, device)

    operator.py_kernels[DispatchKey.BackendSelect] = run
    operator._dispatch_cache.clear()
