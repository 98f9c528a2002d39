"""Packages of AOTInductor whose code has kernels that the device compiles."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch._inductor.virtualized import V
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree

from torch_backend import _C
from torch_backend.compile import package, registered, seams, to_host
from torch_backend.compile.modules.cpp_code import CppCode, note_resident

aten = torch.ops.aten

_ATTENTION = aten._scaled_dot_product_fused_attention_overrideable.default

_PATCHES = {
    "always_keep_tensor_constants": True,  # else those of few elements become part of the code, for the CPU
    "aot_inductor.precompile_headers": False,  # PyTorch has them for its own devices
}


def register(name: str) -> None:
    """Let AOTInductor make packages for the device ``name``."""
    generate = seams.GENERATE.get()

    def generate_package(
        gm: GraphModule, example_inputs: Sequence[Any], inputs_to_check: Sequence[int], *args: Any, **kwargs: Any
    ) -> Any:
        is_ours = V.aot_compilation and registered.generates_modules(name)
        devices = to_host.devices_of(name, gm, example_inputs) if is_ours else set()
        if not devices:
            return generate(gm, example_inputs, inputs_to_check, *args, **kwargs)
        package.check(name)
        device = min(device.index or 0 for device in devices)
        with config.patch(_PATCHES):
            compiled = generate(_with_residents(name, gm), example_inputs, inputs_to_check, *args, **kwargs)
        kernels = _C.kernel_traits(device)
        package.label(name, compiled.filename, example_inputs, kernels=kernels, on_host=CppCode.on_host)
        return compiled

    seams.GENERATE.replace(generate_package)
    torch.library.register_fake("torch_backend::resident", _fake_residents)
    torch.library.register_fake("torch_backend::attention", lambda *args: torch.empty_like(_ATTENTION(*args[:6])[0]))
    torch.library.register_fake("torch_backend::store", lambda target, source: None)


def _fake_residents(stand_ins: list[Tensor]) -> list[Tensor]:
    device = torch._C._get_privateuse1_backend_name()
    return [torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device) for x in stand_ins]


def _with_residents(name: str, gm: GraphModule) -> GraphModule:
    """``gm`` with its constants on the host, and calls of what the device has in their place.

    The code chooses no device: it runs on the one for which the package is loaded.
    """
    result = to_host.copy_of(gm)
    graph = result.graph
    for node in list(graph.nodes):
        asserts = node.target is aten._assert_tensor_metadata.default
        change = _without_device if asserts else _without_index
        node.args, node.kwargs = _pytree.tree_map(change, (node.args, node.kwargs))
        if node.target is _ATTENTION:
            _take_first_result(name, node)
        elif node.op == "call_function":
            _take_numbers(node)
    targets = _constants_of(name, gm)
    if not targets:
        return result
    constants: dict[str, list[Node]] = {}
    for node in graph.find_nodes(op="get_attr"):
        if node.target in targets:
            constants.setdefault(targets[node.target], []).append(node)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        stand_ins = [graph.get_attr(target) for target in constants]
        residents = graph.call_function(torch.ops.torch_backend.resident.default, (stand_ins,))
        items = [graph.call_function(operator.getitem, (residents, index)) for index in range(len(stand_ins))]
    residents.meta["val"] = []
    for target, stand_in, item in zip(constants, stand_ins, items, strict=True):
        host = operator.attrgetter(target)(result)
        note_resident(host)
        with constants[target][0].meta["val"].fake_mode:
            stand_in.meta["val"] = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device="cpu")
            (item.meta["val"],) = _fake_residents([stand_in.meta["val"]])
        residents.meta["val"].append(item.meta["val"])
        for node in constants[target]:
            for user in list(node.users):
                if user.target is aten.copy_.default and user.args[0] is node:
                    user.target = torch.ops.torch_backend.store.default
                    user.args = user.args[:2]
                    user.replace_all_uses_with(item, delete_user_cb=lambda _: True)
            node.replace_all_uses_with(item)
            graph.erase_node(node)
    graph.lint()
    result.recompile()
    return result


def _take_first_result(name: str, node: Node) -> None:
    """Make attention that of torch_backend."""
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
        raise NotImplementedError(
            f"AOTInductor makes no package of this for {name}: of attention it takes the result, and not what a "
            "backward pass needs."
        )
    names = [argument.name for argument in _ATTENTION._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    query, key, value = (given[name] for name in names[:3])
    options = (given.get("attn_bias"), given.get("dropout_p", 0.0), given.get("is_causal", False), given.get("scale"))
    with node.graph.inserting_before(node):
        result = node.graph.call_function(torch.ops.torch_backend.attention.default, (query, key, value, *options))
    result.meta.update(node.meta, val=node.meta["val"][0])
    for user in list(node.users):
        user.replace_all_uses_with(result)
        node.graph.erase_node(user)
    node.graph.erase_node(node)


def _take_numbers(node: Node) -> None:
    """Call the overload for numbers where that for tensors is called with one: code passes tensors to it."""
    if isinstance(node.target, OpOverload) and node.target.__name__.endswith(".Tensor") and len(node.args) > 1:
        scalar = getattr(node.target.overloadpacket, "Scalar", None)
        if scalar is not None and isinstance(node.args[1], int | float | complex):
            node.target = scalar


def _constants_of(name: str, gm: GraphModule) -> dict[str, str]:
    """The names of tensors of the device in ``gm``, and for each the first name of what it is tied to."""
    found: dict[str, str] = {}
    first: dict[Any, str] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(node.target)(gm)
        if isinstance(value, GraphModule) and _constants_of(name, value):
            raise NotImplementedError(
                f"AOTInductor makes no package of this for {name}: a graph within the graph has constants of its own."
            )
        if isinstance(value, Tensor) and value.device.type == name:
            form = (value.data_ptr(), value.dtype, value.size(), value.stride())
            found[node.target] = first.setdefault(form if value.numel() else node.target, node.target)
    return found


def _without_device(value: Any) -> Any:
    return None if isinstance(value, torch.device) else value


def _without_index(value: Any) -> Any:
    return torch.device(value.type) if isinstance(value, torch.device) and value.type != "cpu" else value
