"""Graphs that run as captured, an operator of the device at a time: where there is no way to generate code."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch._dynamo.backends.debugging import aot_eager
from torch.utils import _pytree

from torch_backend.compile import seams


def register(name: str, reason: str) -> None:
    """From now on, the default backend of torch.compile runs graphs of the device ``name`` as aot_eager does.

    A warning gives ``reason``, a sentence, the first time.
    """
    compile_fx = seams.COMPILE_FX.get()
    warned = False

    def compile_or_capture(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal warned
        if not _uses(name, model_, example_inputs_):
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        if not warned:
            warned = True
            warnings.warn(
                f"torch.compile runs graphs of {name} as captured, which is what backend='aot_eager' does: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
        return aot_eager(model_, example_inputs_)

    seams.COMPILE_FX.replace(compile_or_capture)


def _uses(name: str, graph: Any, example_inputs: Iterable[Any]) -> bool:
    """Whether some tensor of ``graph`` is on a device of the type ``name``."""
    values = [list(example_inputs)]
    for module in graph.modules() if isinstance(graph, torch.nn.Module) else ():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            values.append([node.args, node.kwargs, node.meta.get("example_value"), node.meta.get("val")])
    return any(_device_type(value) == name for value in _pytree.tree_leaves(values))


def _device_type(value: Any) -> str | None:
    if isinstance(value, torch.Tensor):
        return value.device.type
    if isinstance(value, torch.device):
        return value.type
    return value.partition(":")[0] if isinstance(value, str) else None
