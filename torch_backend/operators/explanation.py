"""What is known of how operators run on the active device, and the text that says it."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_backend.operators.derivatives import Derivative
from torch_backend.operators.sources import Source
from torch_backend.operators.target import KernelTarget

_SOURCES: Mapping[str, str] = {
    "plugin": "the device library's own kernel",
    "native": "a kernel written for the device",
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
    derivative: Derivative
    backward_sources: Mapping[str, Source]

    def __str__(self) -> str:
        """A few lines for people."""
        rows = [("source", self._source_text()), ("autograd", self._autograd_text()), ("kernel", self._kernel_text())]
        return "\n".join([self.schema, *_rows(rows), *self._ways()])

    def _source_text(self) -> str:
        text = f"{self.source}: {_SOURCES.get(self.source, self.registered or '')}"
        if self.source == "composite":
            return f"{text} ({self.composite})"
        return f"{text}, {self.registered}" if self.source == "extension" else text

    def _autograd_text(self) -> str:
        if self.derivative.derivation == "composite":
            return "through the operators that it is made of"
        if self.derivative.derivation == "kernel":
            return "a library registered an autograd kernel"
        if self.derivative.derivation == "none":
            return "PyTorch has no derivative for it"
        text = "PyTorch has the derivative: only the forward pass is to be written"
        listed = ", ".join(f"{op} ({source})" for op, source in self.backward_sources.items())
        return f"{text}. It calls {listed}" if listed else text

    def _kernel_text(self) -> str:
        if self.kernel is None:
            return (
                "none needed: write those of the operators that it is made of; explain() with example inputs lists "
                f"them. A kernel for {self.op} itself replaces them, and then needs a backward pass of its own"
            )
        now = "" if self.kernel.op == self.op else f" (now {self.kernel_source})"
        also = f", which also serves {' and '.join(self.kernel.serves)}" if self.kernel.serves else ""
        return f"{self.kernel.op}{now}{also}"

    def _ways(self) -> list[str]:
        if self.kernel is None:
            return []
        op = self.kernel.op
        registrations = " ".join(f'm.impl("{form.split("::")[1]}", ...);' for form in self.kernel.replaces)
        ways = [
            ("in C", f'an entry "{op}" in the device library\'s table "kernels.1"'),
            ("in C++", f"TORCH_LIBRARY_IMPL({op.split('::')[0]}, PrivateUse1, m) {{ {registrations} }}"),
            ("in Python", f'@torch_backend.kernel("{op}")'),
        ]
        return _rows(ways[1:] if self.kernel.is_view else ways)


@dataclass(frozen=True)
class TracedOperator:
    """An overload that ran on the device during an example call, its source, how often, and what to write for it."""

    op: str
    source: Source
    calls: int
    kernel: KernelTarget | None


@dataclass(frozen=True)
class Explanation:
    """What :func:`torch_backend.explain` found.

    Attributes:
        device: the active device's name.
        overloads: one entry per overload; with example inputs, per overload that was called.
        trace: with example inputs, every operator call on the device that the call led to; else None.
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


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    return [
        textwrap.fill(
            text, 120, initial_indent=f"  {title + ':':<11}", subsequent_indent=" " * 13, break_long_words=False
        )
        for title, text in rows
    ]
