"""Operators that a graph of the CPU's calls on the device: those that draw random numbers, or have no CPU kernel.

Collectives too, which the device's process group does.

Each gets another of the same schema, whose kernel copies its arguments to the current device, calls it there and copies
its results back.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree

_NAMESPACE = "torch_backend_host_graph"
_library = torch.library.Library(_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_defined: dict[str, OpOverload] = {}

_ONLY_REFUSED = {"aten::convolution_overrideable", "aten::convolution_backward_overrideable"}
"""Operators whose kernel for all devices is an error."""

_CALLS_WHAT_THE_CPU_LACKS = {"torch_attn"}
"""Namespaces of operators whose kernel for all devices calls one that the CPU has not: attention of sequences."""


def overload_name(target: OpOverload) -> str:
    """The name by which :func:`operator` knows ``target``."""
    return f"{target.namespace}.{target.__name__}"


def is_ours(target: OpOverload) -> bool:
    """Whether :func:`operator` has made ``target``."""
    return target.namespace == _NAMESPACE


def is_needed(target: OpOverload) -> bool:
    """Whether a graph of the CPU's cannot call ``target``."""
    if is_ours(target):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return True
    if target.namespace == "prims":
        return False
    name = target.name()  # type: ignore[no-untyped-call]
    return (
        _is_collective(target)
        or name in _ONLY_REFUSED
        or target.namespace in _CALLS_WHAT_THE_CPU_LACKS
        or not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
    )


def _is_collective(target: OpOverload) -> bool:
    return target.namespace in ("_c10d_functional", "_dtensor") and target.__name__ != "wait_tensor.default"


def operator(overload: str) -> OpOverload:
    """The operator to call instead of ``overload``, "aten.multinomial.default"."""
    if overload not in _defined:
        namespace, packet, variant = overload.split(".")
        _defined[overload] = _define(getattr(getattr(getattr(torch.ops, namespace), packet), variant))
    return _defined[overload]


@functools.cache
def _opaque_type() -> str:
    """The name of a type of objects into which PyTorch does not look: an operator that takes it takes any of them."""
    from torch._library.opaque_object import get_opaque_type_name, register_opaque_type
    from torch._opaque_base import OpaqueBase

    class Opaque(OpaqueBase):
        pass

    Opaque.__qualname__ = Opaque.__name__  # as a schema can name it
    register_opaque_type(Opaque, typ="reference")
    return get_opaque_type_name(Opaque)


def _copy(host: Any, there: Any) -> None:
    if isinstance(host, Tensor):  # an optional one may be None
        host.copy_(there)


def _define(target: OpOverload) -> OpOverload:
    name = f"{target.namespace}_{target.__name__}".replace(".", "_")
    arguments = str(target._schema).partition("(")[2]
    if "PyObject " in arguments:  # what a schema shows of every opaque type
        arguments = arguments.replace("PyObject ", f"{_opaque_type()} ")
    names = [argument.name for argument in target._schema.arguments]
    written = {
        each.name for each in target._schema.arguments if each.alias_info is not None and each.alias_info.is_write
    }
    module = torch.get_device_module()

    def call(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(torch._C._get_privateuse1_backend_name(), module.current_device())

        def to_device(value: Any) -> Any:
            if isinstance(value, torch.device):
                return device
            return value.to(device) if isinstance(value, Tensor) else value

        there_args, there_kwargs = _pytree.tree_map(to_device, (args, kwargs))
        results = target(*there_args, **there_kwargs)
        if _is_collective(target):
            _pytree.tree_map_(torch.ops._c10d_functional.wait_tensor, results)
        given = (
            *zip(names, args, there_args, strict=False),
            *((key, value, there_kwargs[key]) for key, value in kwargs.items()),
        )
        for argument, host, there in given:
            if argument in written:
                _pytree.tree_map_(_copy, host, there)
        return _pytree.tree_map(lambda value: value.cpu() if isinstance(value, Tensor) else value, results)

    tags = (*target.tags, torch.Tag.needs_fixed_stride_order)
    _library.define(f"{name}({arguments}", tags=tags)  # type: ignore[no-untyped-call]
    _library.impl(name, call, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{_NAMESPACE}::{name}", target, lib=_library)
    result: OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return result
