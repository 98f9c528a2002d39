"""How an operator runs on the active device, and what it takes to give it a kernel."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from torch_backend.devices.activation import active
from torch_backend.operators import dispatch, names
from torch_backend.operators.calls import count_calls
from torch_backend.operators.derivatives import Derivative, derivative_of
from torch_backend.operators.needed import SERVED_EVERYWHERE
from torch_backend.operators.parts import parts_of
from torch_backend.operators.sources import Source, operator_sources
from torch_backend.operators.target import KernelTarget, target_of
from torch_backend.operators.triton_launches import count_launches

_SOURCES: Mapping[str, str] = {
    "plugin": "the device library's own kernel",
    "generated": "a kernel that the device compiles",
    "native": "torch_backend's own kernel",
    "aten": "ATen's CPU kernel on the device's memory",
    "extension": "somebody's kernel",
    "composite": "made of other operators",
    "fallback": "runs on the CPU",
    "unavailable": "a call raises NotImplementedError",
}


@dataclass(frozen=True)
class OverloadExplanation:
    """How one overload runs on the active device.

    Attributes:
        op: the overload, "aten::_softmax".
        schema: PyTorch's.
        source: where its kernel comes from, see :data:`torch_backend.operators.SOURCES`.
        registered: where the kernel in force was registered, "registered at <file>"; None where there is none for the
            device, so that a composite kernel or the fallback serves.
        composite: the dispatch key of PyTorch's kernel made of other operators ("CompositeImplicitAutograd", ...); None
            if there is none. It serves if ``source`` is "composite".
        kernel: what to write a kernel for, to serve it natively. None for an operator that is made of others on every
            device: it is as native as these are.
        kernel_source: where the kernel for ``kernel.op`` comes from now; None if ``kernel`` is.
        made_of: if ``kernel`` is None, what it calls with small example tensors, in order, and the source of each.
            Empty where no examples were found that it takes.
        derivative: how PyTorch differentiates it.
        backward_sources: the source of each of ``derivative.operators``.
    """

    op: str
    schema: str
    source: Source
    registered: str | None
    composite: str | None
    kernel: KernelTarget | None
    kernel_source: Source | None
    made_of: Mapping[str, Source]
    derivative: Derivative
    backward_sources: Mapping[str, Source]

    def __str__(self) -> str:
        """A few lines for people."""
        rows = [("source", self._source_text()), ("autograd", self._autograd_text()), ("kernel", self._kernel_text())]
        if self.made_of:
            rows.insert(1, ("made of", _listed(self.made_of)))
        return "\n".join([self.schema, *_rows(rows), *self._ways()])

    def _source_text(self) -> str:
        text = f"{self.source}: {_SOURCES.get(self.source, self.registered or '')}"
        if self.source == "composite":
            return f"{text} ({self.composite or 'by torch_backend'})"
        return f"{text}, {self.registered}" if self.source == "extension" else text

    def _autograd_text(self) -> str:
        if self.derivative.derivation == "composite":
            return "through the operators that it is made of"
        if self.derivative.derivation == "kernel":
            return "a library registered an autograd kernel"
        if self.derivative.derivation == "none":
            return "PyTorch has no derivative for it"
        text = "PyTorch has the derivative: only the forward pass is to be written"
        return f"{text}. It calls {_listed(self.backward_sources)}" if self.backward_sources else text

    def _to_write(self) -> list[KernelTarget]:
        """What serves it natively: its own kernel, or those of what it is made of and the core does not serve."""
        if self.kernel is not None:
            return [self.kernel]
        targets = (target_of(op) for op, source in self.made_of.items() if source not in SERVED_EVERYWHERE)
        return list({target.op: target for target in targets if target is not None}.values())

    def _kernel_text(self) -> str:
        if self.kernel is None:
            names = [target.op for target in self._to_write()]
            write = (
                f"{' and '.join(names)}, of what it is made of"
                if names
                else "those of the operators that it is made of; explain() with example inputs lists them"
            )
            return (
                f"none of its own needed: write {write}. A kernel for {self.op} itself replaces them, and then needs a "
                "backward pass of its own"
            )
        now = "" if self.kernel.op == self.op else f" (now {self.kernel_source})"
        also = f", which also serves {' and '.join(self.kernel.serves)}" if self.kernel.serves else ""
        return f"{self.kernel.op}{now}{also}"

    def _ways(self) -> list[str]:
        targets = self._to_write()
        if len(targets) != 1:
            return []
        (kernel,) = targets
        op = kernel.op
        registrations = " ".join(f'm.impl("{form.split("::")[1]}", ...);' for form in kernel.replaces)
        ways = [
            ("in C", f'an entry "{op}" in the device library\'s table "kernels.1"'),
            ("in C++", f"TORCH_LIBRARY_IMPL({op.split('::')[0]}, PrivateUse1, m) {{ {registrations} }}"),
            ("in Python", f'@torch_backend.kernel("{op}")'),
        ]
        return _rows(ways[1:] if kernel.is_view else ways)


@dataclass(frozen=True)
class TracedOperator:
    """What ran on the device during an example call, how often, and what to write for it.

    An overload and its source, or the name of a Triton kernel and "triton".
    """

    op: str
    source: Source | Literal["triton"]
    calls: int
    kernel: KernelTarget | None


@dataclass(frozen=True)
class Explanation:
    """What :func:`torch_backend.explain` found.

    Attributes:
        device: the active device's name.
        overloads: one entry per overload; with example inputs, per overload that was called.
        trace: with example inputs, every operator call on the device that the call led to, and every Triton kernel
            that it launched; else None.
    """

    device: str
    overloads: tuple[OverloadExplanation, ...]
    trace: tuple[TracedOperator, ...] | None = None

    def __iter__(self) -> Iterator[OverloadExplanation]:
        """The overloads."""
        return iter(self.overloads)

    def __len__(self) -> int:
        """Number of overloads."""
        return len(self.overloads)

    def __str__(self) -> str:
        """A short text for people."""
        parts = [f"on {self.device}:", *map(str, self.overloads)]
        return "\n\n".join(parts if self.trace is None else [*parts, _table(self.trace)])


def _table(trace: tuple[TracedOperator, ...]) -> str:
    rows = [("ran on the device", "source", "calls", "kernel to write")]
    rows += [(entry.op, entry.source, str(entry.calls), entry.kernel.op if entry.kernel else "-") for entry in trace]
    op, source, calls, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join(f"{row[0]:<{op}}  {row[1]:<{source}}  {row[2]:>{calls}}  {row[3]}" for row in rows)


def _listed(sources: Mapping[str, Source]) -> str:
    return ", ".join(f"{op} ({source})" for op, source in sources.items())


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text, 120, initial_indent=f"  {title + ':':<11}", subsequent_indent=" " * 13, break_long_words=False
        )
        for title, text in rows
    ]


def explain(op: names.Operator, *args: object, **kwargs: object) -> Explanation:
    """Say how an operator runs on the active device, and what it would take to write a kernel for it.

    ``print(torch_backend.explain("softmax.int"))`` shows the schema, the kernel's source, whether PyTorch
    differentiates the operator, and the overload to write a kernel for in C, C++ or Python. What a composite operator
    is made of is what it calls with small example tensors, and may depend on the arguments:
    ``torch_backend.explain("softmax.int", x, -1)`` lists every operator that this call runs on the device, with its
    source.

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
    with count_calls() as counts, count_launches() as launches:
        function(*args, **kwargs)
    if not counts.entries:
        raise ValueError(f"The call ran nothing on {device}: pass example inputs that are on {device}.")
    entries = sorted(counts.entries, key=lambda entry: (entry.op not in overloads, -entry.calls, entry.op))
    traced = [TracedOperator(entry.op, entry.source, entry.calls, target_of(entry.op)) for entry in entries]
    return (*traced, *(TracedOperator(name, "triton", calls, None) for name, calls in sorted(launches.items())))


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
        made_of={} if kernel is not None else {part: sources[part] for part in parts_of(overload) if part in sources},
        derivative=derivative,
        backward_sources={op: _source_of(op, sources) for op in derivative.operators},
    )


def _source_of(operator: str, sources: Mapping[str, Source]) -> Source:
    """Of an operator without overload name, as formulas name them: its first overload's, the functional one."""
    return sources[operator] if operator in sources else sources[names.overloads_of(operator)[0]]
