"""The default backend of torch.compile, asked for a graph of the device as Dynamo captured it.

What nothing generates code for is found here, before AOTAutograd and the caches, and runs as captured, an operator of
the device at a time.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._dynamo.backends.debugging import aot_eager
from torch._functorch import config as functorch_config
from torch._inductor import config, utils
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Node
from torch.utils import _pytree

from torch_backend.compile import graph_trees, package, registered, seams


def register(name: str, reason: str | None) -> None:
    """From now on, graphs of the device ``name`` are looked at before they are compiled.

    ``reason``, a sentence, says why nothing generates code for any of them. What a graph does not get is a warning the
    first time, and NotImplementedError where nothing else could be done instead.
    """
    compile_fx = seams.COMPILE_FX.get()
    said: set[str] = set()

    def say(text: str) -> None:
        if text not in said:
            said.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def compile_on_device(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if registered.has_own_code_generation(name) or not (devices := _devices(name, model_, example_inputs_)):
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        _write_out_flex_attention(name, model_)
        why = reason or _why_captured(model_, devices)
        if V.aot_compilation and (problem := why or package.problem(name)):
            raise NotImplementedError(
                f"AOTInductor makes no package of this for {name}: {problem} Export the program, move it to the CPU by "
                "move_to_device_pass of torch.export.passes, and package that; or use torch.compile, whose cache keeps "
                "code."
            )
        if why is not None:
            say(f"torch.compile runs graphs of {name} as captured, which is what backend='aot_eager' does: {why}")
            return aot_eager(model_, example_inputs_)
        asked, patches = kwargs.get("config_patches") or {}, {}
        if asked.get("combo_kernels", config.combo_kernels) and not registered.generates_triton(name):
            patches["combo_kernels"] = False  # several kernels in one are Triton's
        if config.triton.cudagraphs:
            if problem := graph_trees.problem(name):
                patches["triton.cudagraphs"] = False
                say(
                    f"torch.compile captures no graphs of {name} in graphs of the device, which "
                    f"mode='reduce-overhead' and 'max-autotune' ask for: {problem} The rest of the mode applies."
                )
            elif config.graph_partition and name not in utils.GPU_TYPES:
                patches["graph_partition"] = False  # Inductor splits graphs for devices that have Triton alone
        if patches:  # Inductor comes here again with what is patched
            kwargs["config_patches"] = {**asked, **patches}
        # Inductor's code has states of generators that graphs may capture for CUDA alone.
        with functorch_config.patch(graphsafe_rng_functionalization=False):
            return compile_fx(model_, example_inputs_, *args, **kwargs)

    seams.COMPILE_FX.replace(compile_on_device)


def _why_captured(graph: Any, devices: set[torch.device]) -> str | None:
    """Why no code is generated for ``graph``, as a sentence; None if it is."""
    if len({device.index for device in devices} - {None}) > 1:
        return "generated code runs on one device, and a graph has tensors on several."
    if any(node.op == "call_function" and str(node.target).startswith("streams.") for _, node in _nodes(graph)):
        return "generated code runs on one stream, and a graph chooses streams or waits for them."
    return None


def _write_out_flex_attention(name: str, graph: Any) -> None:
    """Make flex_attention the operators that it stands for where Inductor's kernel is for Triton alone.

    For the CPU, Inductor has one that returns nothing that a backward pass needs.
    """
    for module, node in list(_nodes(graph)):
        if node.target is not torch.ops.higher_order.flex_attention:
            continue
        options: Any = node.args[6]
        if not registered.generates_for_host(name) or options["OUTPUT_LOGSUMEXP"] or options.get("OUTPUT_MAX"):
            node.target = seams.DENSE_ATTENTION.get()
            module.recompile()


def _nodes(graph: Any) -> Iterator[tuple[GraphModule, Node]]:
    """All nodes of ``graph`` and of the graphs in it, with their graph."""
    for module in graph.modules() if isinstance(graph, torch.nn.Module) else ():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                yield module, node


def _devices(name: str, graph: Any, example_inputs: Iterable[Any]) -> set[torch.device]:
    """The devices of the type ``name`` that ``graph`` names or has tensors on; without an index, the current one."""
    values = [list(example_inputs)]
    for _, node in _nodes(graph):
        values.append([node.args, node.kwargs, node.meta.get("example_value"), node.meta.get("val")])
    found = {_device(name, value) for value in _pytree.tree_leaves(values)}
    return {device for device in found if device is not None and device.type == name}


def _device(name: str, value: Any) -> torch.device | None:
    if isinstance(value, torch.Tensor):
        return value.device
    if isinstance(value, str) and value.partition(":")[0] == name:
        return torch.device(value)
    return value if isinstance(value, torch.device) else None
