"""A graph of the device as one of the CPU's."""

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._inductor import inductor_prims
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.nn import Parameter
from torch.utils import _pytree

from torch_backend.compile import on_device

aten = torch.ops.aten


@dataclass(frozen=True)
class HostVersion:
    """A graph of the CPU's that does what one of the device does, and how to run it on the device's memory."""

    graph: GraphModule | None
    inputs: list[Any]
    """What to compile ``graph`` for."""
    on_device: list[bool]
    """Of each result, whether it belongs on the device."""
    device: int
    """The index of the device, where no input tells; -1: the current one when it runs."""
    seeds: int
    """How many random numbers the graph takes as its last input; 0: it has no such input."""
    operators: tuple[str, ...]
    """Those that :mod:`on_device` has to define before the graph is loaded."""
    results: list[Any] | None
    """For each result None, ``("input", index)``, ``("result", index)`` of an earlier one, or a tensor's sizes, strides
    and dtype; None: they are known only when the graph has run, or it has to run on the calling thread."""
    resized: list[int]
    """The inputs whose storage it gives another size."""

    def compiled(self, strides: Sequence[tuple[str, ...] | None]) -> "HostVersion":
        """What is needed to run it, given the strides of its results, as Inductor writes them."""
        results = self.results
        if results is not None:
            known = list(map(_with_strides, results, strides))
            results = None if any(found is _UNKNOWN for found in known) else known
        return replace(self, graph=None, inputs=[], results=results)


def to_host(name: str, gm: GraphModule, example_inputs: Sequence[Any]) -> HostVersion | None:
    """The graph ``gm`` of devices of the type ``name``; None if it has nothing on one. ``gm`` stays as it is."""
    devices = devices_of(name, gm, example_inputs)
    if not devices:
        return None
    nodes = list(_output_of(gm.graph).args[0])  # type: ignore[arg-type]
    is_there = [isinstance(value, Tensor) and value.device.type == name for value in map(_value_of, nodes)]
    indices = {device.index for device in devices if device.index is not None}
    device = min(indices) if indices else -1
    graph = copy_of(gm)
    inputs = list(example_inputs)
    seeds = _take_seeds(name, graph, inputs)
    operators: set[str] = set()
    for module in graph.modules():
        if isinstance(module, GraphModule):
            operators |= _rewrite(name, module)
    resized = _resized_in(graph.graph)
    return HostVersion(
        graph,
        [_on_cpu(name, value) for value in inputs],
        is_there,
        device,
        seeds,
        tuple(sorted(operators)),
        None if operators or resized else _foresee(gm.graph, nodes, is_there),
        resized,
    )


def _output_of(graph: Graph) -> Node:
    output: Node = next(iter(reversed(graph.nodes)))
    return output


def _resized_in(graph: Graph) -> list[int]:
    """The inputs of ``graph`` whose storage it gives another size."""
    resizes = graph.find_nodes(op="call_function", target=torch.ops.inductor.resize_storage_bytes_.default)
    found = {node.args[0] for node in resizes}
    return [index for index, node in enumerate(graph.find_nodes(op="placeholder")) if node in found]


def _value_of(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, Node) else value


def devices_of(name: str, gm: GraphModule, example_inputs: Sequence[Any]) -> set[torch.device]:
    """All devices of the type ``name`` that the graph names or has tensors on."""
    values: list[Any] = [list(example_inputs)]
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            values.append([node.args, node.kwargs, node.meta.get("val")])
        values.extend([*module.parameters(recurse=False), *module.buffers(recurse=False)])
    devices = {
        value.device if isinstance(value, Tensor) else value
        for value in _pytree.tree_leaves(values)
        if isinstance(value, Tensor | torch.device)
    }
    return {device for device in devices if device.type == name}


_UNKNOWN = object()


def _foresee(graph: Graph, nodes: Sequence[Any], is_there: Sequence[bool]) -> list[Any] | None:
    """The results ``nodes``, each as in :attr:`HostVersion.results`, inputs followed by what they are."""
    inputs = graph.find_nodes(op="placeholder")
    first: dict[Node, int] = {}
    memory: dict[int, Node] = {}
    results: list[Any] = []
    for index, (node, there) in enumerate(zip(nodes, is_there, strict=True)):
        if node is None:
            results.append(None)
            continue
        if not there:
            return None
        value = node.meta["val"]
        tensor = tuple(value.shape), tuple(value.stride()), value.dtype
        if not all(isinstance(number, int) for number in (*tensor[0], *tensor[1])):
            return None
        if memory.setdefault(value.untyped_storage()._cdata, node) is not node:
            return None  # two results on one memory
        if first.setdefault(node, index) != index:
            results.append(("result", first[node]))
        elif node in inputs:
            results.append(("input", inputs.index(node), *tensor))
        else:
            results.append(tensor)
    return results


def _with_strides(result: Any, strides: tuple[str, ...] | None) -> Any:
    """A result of :func:`_foresee` once its strides are known."""
    if result is None or result[0] == "result":
        return result
    if strides is None or not all(stride.isdigit() for stride in strides):
        return _UNKNOWN
    known = tuple(map(int, strides))
    sizes, before, dtype = result[-3:]
    return result[:2] if result[0] == "input" and known == before else (sizes, known, dtype)


def copy_of(gm: GraphModule) -> GraphModule:
    """A graph of its own with the same constants, those of the device copied to the host."""
    result = GraphModule(gm, copy.deepcopy(gm.graph))
    result.meta.update({key: _constant_on_cpu(value) for key, value in gm.meta.items()})  # AOTInductor's has buffers
    result.shape_env = getattr(gm, "shape_env", None)
    if getattr(gm, "_has_frozen_params", False):
        result._has_frozen_params = True  # type: ignore[assignment]
    for node in result.graph.find_nodes(op="get_attr"):
        *path, field = node.target.split(".")
        owner: Any = result
        for part in path:
            owner = getattr(owner, part)
        value = getattr(owner, field)
        if isinstance(value, GraphModule):
            setattr(owner, field, copy_of(value))
        elif isinstance(value, Tensor) and not value.is_cpu:
            host = _constant_on_cpu(value)
            if getattr(value, "_is_frozen_param", False):
                host._is_frozen_param = True
            delattr(owner, field)
            if isinstance(value, Parameter):
                owner.register_parameter(field, Parameter(host, requires_grad=False))
            else:
                owner.register_buffer(field, host)
    return result


def _constant_on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) and not value.is_cpu else value


def _on_cpu(name: str, value: Any) -> Any:
    """``value`` with fake tensors and devices of the type ``name`` as those of the CPU, made anew."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.device) and leaf.type == name:
            return torch.device("cpu")
        if isinstance(leaf, FakeTensor) and leaf.device.type == name:
            with leaf.fake_mode:
                return _empty_on_cpu(leaf)
        return leaf

    return _pytree.tree_map(convert, value)


def _empty_on_cpu(like: Tensor) -> Tensor:
    offset = like.storage_offset()
    if isinstance(offset, int) and offset == 0:
        return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device="cpu")
    ends = [(size - 1) * stride for size, stride in zip(like.size(), like.stride(), strict=True)]
    is_empty = any(isinstance(size, int) and size == 0 for size in like.size())
    elements = offset if is_empty else offset + 1 + sum(ends)
    host = torch.empty(elements, dtype=like.dtype, device="cpu")
    return host.as_strided(like.size(), like.stride(), offset)


def _rewrite(name: str, module: GraphModule) -> set[str]:
    """Make the nodes of ``module`` those of the CPU. Returns the operators that keep being called on the device."""
    operators = set()
    there = {node for node in module.graph.nodes if _is_of_devices(name, node)}
    for node in list(module.graph.nodes):
        if _copies_across(name, node):
            node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}
        for key in ("val", "eager_input_vals"):  # the second has the inputs of subgraphs
            if key in node.meta:
                node.meta[key] = _on_cpu(name, node.meta[key])
        node.args = _on_cpu(name, node.args)
        node.kwargs = _on_cpu(name, node.kwargs)
        if node.op != "call_function" or node not in there:
            continue
        if node.target in _EQUIVALENTS:
            _EQUIVALENTS[node.target](module.graph, node)
            continue
        values = [node.target, *node.args]  # an argument of some is what they call
        for index, value in enumerate(values):
            if isinstance(value, OpOverload) and on_device.is_needed(value):
                operators.add(on_device.overload_name(value))
                values[index] = on_device.operator(on_device.overload_name(value))
        node.target, node.args = values[0], tuple(values[1:])
    module.graph.lint()
    module.recompile()
    return operators


def _is_of_devices(name: str, node: Node) -> bool:
    """Whether ``node`` has anything to do with devices of the type ``name``: others draw from the CPU's generator."""
    leaves = _pytree.tree_leaves(_pytree.tree_map(_value_of, [node.args, node.kwargs, node]))
    devices = (leaf.device if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    return any(isinstance(device, torch.device) and device.type == name for device in devices)


def _copies_across(name: str, node: Node) -> bool:
    """Whether ``node`` copies from the device to the host or back, without another change."""
    if node.target not in (torch.ops.prims.device_put.default, aten._to_copy.default):
        return False
    source, result = _value_of(node.args[0]), node.meta.get("val")
    return (
        isinstance(source, Tensor)
        and isinstance(result, Tensor)
        and source.dtype == result.dtype
        and source.device.type != result.device.type
        and name in (source.device.type, result.device.type)
    )


def _take_seeds(name: str, graph: GraphModule, inputs: list[Any]) -> int:
    """Make the seeds that ``graph`` draws on a device an input of it, the last one. Returns how many there are."""
    prims = (inductor_prims.seeds, inductor_prims.seed)
    nodes = [node for node in graph.graph.nodes if node.target in prims and node.meta["val"].device.type == name]
    counts = [node.args[0] if node.target is inductor_prims.seeds else 1 for node in nodes]
    total = sum(counts)
    if total == 0:
        return 0
    placeholders = graph.graph.find_nodes(op="placeholder")
    first = next(iter(graph.graph.nodes))
    with graph.graph.inserting_after(placeholders[-1]) if placeholders else graph.graph.inserting_before(first):
        drawn = graph.graph.placeholder("device_seeds")
    with nodes[0].meta["val"].fake_mode:
        drawn.meta["val"] = torch.empty(total, dtype=torch.int64, device="cpu")
    inputs.append(drawn.meta["val"])
    begin = 0
    for node, count in zip(nodes, counts, strict=True):
        for user in list(node.users):
            if user.target is inductor_prims.lookup_seed:  # its code takes the whole memory of a view
                user.args = (drawn, begin + user.args[1])
        with graph.graph.inserting_before(node):
            if node.target is inductor_prims.seeds:
                seeds = graph.graph.call_function(aten.slice.Tensor, (drawn, 0, begin, begin + count))
            else:
                seeds = graph.graph.call_function(aten.select.int, (drawn, 0, begin))
        seeds.meta.update(node.meta)
        node.replace_all_uses_with(seeds if count != total else drawn)
        graph.graph.erase_node(node)
        begin += count
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return total


def _attention(graph: Graph, node: Node) -> None:
    """The fused attention of devices as that of the CPU."""
    query, key, value, bias, dropout, causal, _, scale = _arguments(node)
    with graph.inserting_before(node):
        result = graph.call_function(
            aten._scaled_dot_product_flash_attention_for_cpu.default,
            (query, key, value, dropout, causal),
            {"attn_mask": bias, "scale": scale},
        )
        parts = [graph.call_function(operator.getitem, (result, index)) for index in (0, 1)]
        seed = graph.call_function(aten.full.default, ([], 0), {"dtype": torch.int64, "device": torch.device("cpu")})
        sizes = [graph.call_function(aten.sym_size.int, (tensor, 2)) for tensor in (query, key)]
    values = node.meta["val"]
    result.meta["val"] = values[:2]
    by_index = {0: parts[0], 1: parts[1], 4: sizes[0], 5: sizes[1], 6: seed, 7: seed}
    _replace_items(graph, node, by_index)


def _attention_backward(graph: Graph, node: Node) -> None:
    grad, query, key, value, bias, _, out, logsumexp, _, _, _, _, dropout, causal, _, _, scale = _arguments(node)
    with graph.inserting_before(node):
        result = graph.call_function(
            aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            (grad, query, key, value, out, logsumexp, dropout, causal),
            {"attn_mask": bias, "scale": scale},
        )
        parts = {index: graph.call_function(operator.getitem, (result, index)) for index in range(3)}
    result.meta["val"] = node.meta["val"][:3]
    _replace_items(graph, node, parts)


def _arguments(node: Node) -> list[Any]:
    """All arguments of ``node``, in the order of its schema."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)} | dict(node.kwargs)
    return [given.get(argument.name, argument.default_value) for argument in schema]


def _replace_items(graph: Graph, node: Node, by_index: dict[int, Node]) -> None:
    """Take what is in ``by_index`` for the results of ``node`` with these indices."""
    for user in list(node.users):
        replacement = by_index[user.args[1]]  # type: ignore[index]
        replacement.meta.update(user.meta)
        user.replace_all_uses_with(replacement)
        graph.erase_node(user)
    graph.erase_node(node)
    for part in reversed(by_index.values()):
        if not part.users and not part._erased:
            graph.erase_node(part)


_EQUIVALENTS: dict[Any, Callable[[Graph, Node], None]] = {
    aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: _attention_backward,
}
"""Operators that PyTorch has for the devices of vendors, and how to write them as others that the CPU has."""
