"""What a kernel does: passes over what is reduced, and what is between them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch._inductor.codegen.simd import IterationRangesEntry

from torch_backend.compile.modules.loop_ir import (
    Declaration,
    Load,
    Node,
    Statement,
    expression,
    hoist,
    names_in,
    without_unused,
)
from torch_backend.compile.modules.reductions import Reduction


@dataclass
class Reduced:
    """A pass over what is reduced, and what is computed once before it."""

    before: list[Node]
    lines: list[Node]
    reductions: list[Reduction] = field(default_factory=list)

    def hoist(self, entries: Iterable[IterationRangesEntry]) -> None:
        """Takes out of the pass what is the same for all its elements; ``entries`` are the kernel's."""
        varying = {str(entry.name) for entry in entries if entry.is_reduction} | {"r0_index"}
        once, self.lines = hoist(self.lines, varying)
        self.before = self.before + once

    def steps(self, suffix: str = "") -> list[Node]:
        """Adds an element to each reduction."""
        return [reduction.step(suffix) for reduction in self.reductions]

    def merges(self, suffix: str, other: str) -> list[Node]:
        """Adds the fields that ``other`` ends to those that ``suffix`` does."""
        return [reduction.merge(suffix, other) for reduction in self.reductions]

    def loads(self) -> tuple[list[Declaration], list[Node]]:
        """What can be read of several elements before anything is done with them; the other lines."""
        found = {line.sets for line in self.lines if isinstance(line, (Declaration, Statement))}
        first: list[Declaration] = []
        rest: list[Node] = []
        for line in self.lines:
            is_load = isinstance(line, Declaration) and isinstance(line.value, Load)
            if isinstance(line, Declaration) and is_load and not names_in([line.value]) & found:
                first.append(line)
            else:
                rest.append(line)
        return first, rest

    @property
    def fields(self) -> list[tuple[str, str, str]]:
        """Type, name and initial value of each."""
        return [each for r in self.reductions for each in zip(r.types, r.fields(), r.initial, strict=True)]

    @property
    def declared(self) -> list[Node]:
        """The fields."""
        return [Declaration(kind, name, expression(initial)) for kind, name, initial in self.fields]


Part = Reduced | list[Node]
"""Between passes there is what is computed once for each element that is kept."""


def drop_unused(parts: list[Part]) -> None:
    """Takes out of ``parts`` the values that nothing has a use for."""
    used: set[str] = set()
    for number, part in reversed(list(enumerate(parts))):
        if isinstance(part, Reduced):
            used |= names_in(part.steps())
            part.lines = without_unused(part.lines, used)
            used |= names_in(part.lines)
            part.before = without_unused(part.before, used)
            used |= names_in(part.before)
        else:
            parts[number] = lines = without_unused(part, used)
            used |= names_in(lines)
