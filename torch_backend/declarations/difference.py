"""What changes for a device between two versions of torch."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from torch_backend.declarations.model import REASONS, Declaration, Declarations


@dataclass(frozen=True)
class Change:
    """One overload that both versions have."""

    old: Declaration
    new: Declaration

    @property
    def op(self) -> str:
        """The overload."""
        return self.new.op


@dataclass(frozen=True)
class Difference:
    """What is new, gone and different. ``old`` and ``new`` are versions of torch, None where unknown.

    An overload whose schema and requirement both changed is in both tuples.
    """

    old: str | None
    new: str | None
    added: tuple[Declaration, ...]
    removed: tuple[Declaration, ...]
    changed_schema: tuple[Change, ...]
    changed_requirement: tuple[Change, ...]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.added or self.removed or self.changed_schema or self.changed_requirement)

    def to_json(self) -> dict[str, Any]:
        """A value for the json module: the attributes, with declarations as in :meth:`Declarations.to_json`."""
        return asdict(self)

    def __str__(self) -> str:
        """A text for people: one line per overload, two for a changed schema."""
        title = f"torch {self.old or '(unknown version)'} -> {self.new or '(unknown version)'}"
        if not self:
            return f"{title}: no operator differs."
        lines = [title]
        lines += _section("added", (f"{entry.schema}  [{_need(entry)}]" for entry in self.added))
        lines += _section("removed", (f"{entry.schema}  [{_need(entry)}]" for entry in self.removed))
        lines += _section(
            "changed schema",
            (f"{change.op}\n    - {change.old.schema}\n    + {change.new.schema}" for change in self.changed_schema),
        )
        lines += _section(
            "changed requirement",
            (f"{change.op}: {_need(change.old)} -> {_need(change.new)}" for change in self.changed_requirement),
        )
        return "\n".join(lines)


def difference(old: Declarations, new: Declarations) -> Difference:
    """What is different in ``new``; every tuple is sorted by overload."""
    both = [Change(old[entry.op], entry) for entry in new if entry.op in old]
    return Difference(
        old=old.torch,
        new=new.torch,
        added=tuple(entry for entry in new if entry.op not in old),
        removed=tuple(entry for entry in old if entry.op not in new),
        changed_schema=tuple(change for change in both if change.old.schema != change.new.schema),
        changed_requirement=tuple(change for change in both if change.old.requirement != change.new.requirement),
    )


def _need(declaration: Declaration) -> str:
    return f"{declaration.requirement}: {REASONS.get(declaration.reason, declaration.reason)}"


def _section(heading: str, entries: Iterable[str]) -> list[str]:
    listed = [f"  {entry}" for entry in entries]
    return [f"\n{heading} ({len(listed)})", *listed] if listed else []
