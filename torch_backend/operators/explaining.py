"""How an operator runs on the active device, and what it takes to give it a kernel."""

from collections.abc import Mapping

import torch

from torch_backend.devices.activation import active
from torch_backend.operators import dispatch, names
from torch_backend.operators.calls import count_calls
from torch_backend.operators.derivatives import derivative_of
from torch_backend.operators.explanation import Explanation, OverloadExplanation, TracedOperator
from torch_backend.operators.sources import Source, operator_sources
from torch_backend.operators.target import target_of


def explain(op: names.Operator, *args: object, **kwargs: object) -> Explanation:
    """Say how an operator runs on the active device, and what it would take to write a kernel for it.

    ``print(torch_backend.explain("softmax.int"))`` shows the schema, the kernel's source, whether PyTorch
    differentiates the operator, and the overload to write a kernel for in C, C++ or Python. What a composite operator
    is made of shows only when it runs: ``torch_backend.explain("softmax.int", x, -1)`` lists every operator that this
    call runs on the device, with its source.

    Args:
        op: an overload ("aten::softmax.int", "softmax.int", ``torch.ops.aten.softmax.int``), or an operator for all its
            overloads ("aten::softmax", "softmax", ``torch.ops.aten.softmax``).
        args, kwargs: example inputs, if any. The operator is really called with them, once: an in-place operator
            changes its argument. Calls that other threads make on the device meanwhile are listed, too.

    Raises RuntimeError if no device is active, or if calls are being counted already; ValueError for an operator that
    does not exist, with the names that are close, and if a call with the example inputs does not involve the device;
    and what the operator raises.
    """
    overloads = names.overloads_of(op)
    plugin = active()
    if plugin is None:
        raise RuntimeError(
            "No device of torch_backend is active, and how an operator runs depends on the device. Call "
            "torch_backend.activate(name), or set TORCH_BACKEND=<name> in the environment."
        )
    trace = _trace(op, overloads, args, kwargs, plugin.name) if args or kwargs else None
    if trace is not None:
        called = {entry.op for entry in trace}
        overloads = tuple(overload for overload in overloads if overload in called) or overloads
    sources = operator_sources()
    return Explanation(plugin.name, tuple(_explain(overload, sources) for overload in overloads), trace)


def _trace(
    op: names.Operator, overloads: tuple[str, ...], args: tuple[object, ...], kwargs: Mapping[str, object], device: str
) -> tuple[TracedOperator, ...]:
    function = _callable(op, overloads)
    with count_calls() as counts:
        function(*args, **kwargs)
    if not counts.entries:
        raise ValueError(f"The call ran nothing on {device}: pass example inputs that are on {device}.")
    entries = sorted(counts.entries, key=lambda entry: (entry.op not in overloads, -entry.calls, entry.op))
    return tuple(TracedOperator(entry.op, entry.source, entry.calls, target_of(entry.op)) for entry in entries)


def _callable(op: names.Operator, overloads: tuple[str, ...]) -> "torch._ops.OpOverload | torch._ops.OpOverloadPacket":
    if not isinstance(op, str):
        return op
    namespace, _, name = overloads[0].partition("::")
    operator, _, overload = name.partition(".")
    packet: torch._ops.OpOverloadPacket = getattr(getattr(torch.ops, namespace), operator)
    return getattr(packet, overload or "default") if len(overloads) == 1 else packet


def _explain(overload: str, sources: Mapping[str, Source]) -> OverloadExplanation:
    kernel, derivative = target_of(overload), derivative_of(overload)
    return OverloadExplanation(
        op=overload,
        schema=str(dispatch.schema(overload)),
        source=sources[overload],
        registered=dispatch.registration(overload, "PrivateUse1"),
        composite=dispatch.composite_key(overload),
        kernel=kernel,
        kernel_source=None if kernel is None else sources[kernel.op],
        derivative=derivative,
        backward_sources={op: _source_of(op, sources) for op in derivative.operators},
    )


def _source_of(operator: str, sources: Mapping[str, Source]) -> Source:
    """Of an operator without overload name, as formulas name them: its first overload's, the functional one."""
    return sources[operator] if operator in sources else sources[names.overloads_of(operator)[0]]
