"""``run_and_save_rng_state`` and ``run_with_rng_state``: a compiled backward pass computes random operators again.

They save the generator's state before the operator and restore it for the second time, with a list of the devices they
do that for. From torch 2.13 on the compiler takes the generator's graph-safe state, for the devices that say so in
``register_graphsafe_rng_device_type``, which is what is looked for. May go with torch 2.12.
"""

from typing import Any

import torch
from torch._C import DispatchKey
from torch._functorch._aot_autograd import utils
from torch._prims import rng_prims
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
from torch.utils import _pytree


def register(name: str) -> None:
    """Put the device ``name`` on that list, if this version of torch has it. Once per process."""
    if hasattr(utils, "register_graphsafe_rng_device_type"):
        return
    _extend_saving(name)
    _extend_restoring(name)


def _extend_saving(name: str) -> None:
    operator: Any = rng_prims.run_and_save_rng_state
    others = operator.py_kernels[DispatchKey.BackendSelect]

    def run(op: Any, *args: Any, **kwargs: Any) -> Any:
        device = _device_of(name, args, kwargs)
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


def _extend_restoring(name: str) -> None:
    operator: Any = rng_prims.run_with_rng_state
    others = operator.py_kernels[DispatchKey.BackendSelect]

    def run(rng_state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        device = _device_of(name, args, kwargs)
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


def _device_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """The device, of the type ``name``, that an operator draws random numbers on; None if that is another's."""
    named = kwargs.get("device")
    devices = [torch.device(named)] if named else [arg.device for arg in args if isinstance(arg, torch.Tensor)]
    return next((device for device in devices if device.type == name), None)
