"""Every difference between two versions of torch that may matter to a backend, with where torch_backend meets it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch_backend import declarations

from .headers import Headers
from .modules import Definition, Modules
from .uses import Sources, Use

Kind = Literal[
    "operator", "structured group", "dispatch stub", "virtual function", "autocast", "header", "name", "python"
]


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
        kind: of what.
        what: its name in PyTorch.
        change: "added", "removed" or "changed".
        detail: the old and the new form, or what is to be done.
        uses: the lines of torch_backend that it concerns; () if it concerns none.
    """

    kind: Kind
    what: str
    change: Literal["added", "removed", "changed"]
    detail: str = ""
    uses: tuple[Use, ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether every line that it concerns asks first what this torch has."""
        return bool(self.uses) and all(use.guarded for use in self.uses)

    def to_json(self) -> dict[str, object]:
        """A value for the json module; a use is "path:line"."""
        return {
            "kind": self.kind,
            "what": self.what,
            "change": self.change,
            "detail": self.detail,
            "guarded": self.guarded,
            "uses": [str(use) for use in self.uses],
        }


def findings(old: Path, new: Path, sources: Sources) -> list[Finding]:
    """What differs between the torch of two folders like site-packages (half a minute). Raises ValueError for none."""
    included = frozenset(sources.includes)
    headers = Headers(old / "torch" / "include", included), Headers(new / "torch" / "include", included)
    return [
        *operators(declarations.load(old), declarations.load(new), sources),
        *stubs(*headers, sources),
        *virtuals(*headers, sources),
        *autocast(*headers, sources),
        *includes(*headers, sources),
        *names(*headers, sources),
        *python(Modules(old), Modules(new), sources),
    ]


def operators(old: declarations.Declarations, new: declarations.Declarations, sources: Sources) -> Iterator[Finding]:
    """Overloads, and which of them are parts of structured groups."""
    difference = declarations.difference(old, new)
    kept = {_base(entry.op) for entry in new}
    for entry in difference.added:
        detail = (
            f"{entry.schema}; a device {entry.requirement} have a kernel" if entry.requirement != "need not" else ""
        )
        yield Finding("operator", entry.op, "added", detail or entry.schema)
    for entry in difference.removed:
        uses = _of_operator(entry.op, sources, every_overload=_base(entry.op) not in kept)
        yield Finding("operator", entry.op, "removed", entry.schema, uses)
    for change in difference.changed_schema:
        detail = f"{change.old.schema} -> {change.new.schema}"
        yield Finding("operator", change.op, "changed", detail, _of_operator(change.op, sources))
    for change in difference.changed_requirement:
        detail = f"a device {change.old.requirement} -> {change.new.requirement} have a kernel"
        yield Finding("operator", change.op, "changed", detail, _of_operator(change.op, sources))
    groups = {entry.op for entry in old if entry.structured}, {entry.op for entry in new if entry.structured}
    for op in sorted(groups[0] ^ groups[1]):
        detail = "" if op in old and op in new else f"the operator is {'removed' if op in old else 'added'}"
        yield Finding("structured group", op, _change(op, *groups), detail, _of_operator(op, sources))


def stubs(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """DispatchStubs, by which PyTorch's own kernels call one for the device."""
    before, after = old.stubs(), new.stubs()
    for name in _different(before, after):
        detail = " -> ".join(filter(None, (before.get(name), after.get(name))))
        yield Finding("dispatch stub", name, _change(name, before, after), detail, _at(sources.names, name))


def virtuals(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """Virtual functions of the classes that torch_backend derives from."""
    for base, derived in sorted(sources.bases.items()):
        before, after = old.virtuals(base), new.virtuals(base)
        where = tuple(derived)
        if before is None or after is None:
            if before is not after:
                yield Finding("virtual function", base, "added" if after else "removed", "the whole class", where)
            continue
        known = {function.name for function in before.values()}
        for key in sorted(before.keys() ^ after.keys()):
            function = after.get(key) or before[key]
            ours = tuple(sources.overrides(base, function.name))
            if key in before:
                yield Finding("virtual function", f"{base}::{key}", "removed", "", ours)
            elif function.pure:
                yield Finding("virtual function", f"{base}::{key}", "added", "has to be implemented", ours or where)
            else:
                detail = "another signature" if function.name in known else "may be overridden"
                yield Finding("virtual function", f"{base}::{key}", "added", detail, ours or where)


def autocast(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """The lists of operators for which autocast chooses a dtype."""
    before, after = old.autocast(), new.autocast()
    for name in sorted(before.keys() | after.keys()):
        ops = before.get(name, frozenset()), after.get(name, frozenset())
        for op in sorted(ops[0] ^ ops[1]):
            uses = _at(sources.names, f"AT_FORALL_{name}") or _at(sources.names, "KERNEL_PRIVATEUSEONE")
            yield Finding("autocast", op, _change(op, *ops), f"AT_FORALL_{name}", uses)


def includes(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """The headers that torch_backend includes."""
    for header, uses in sorted(sources.includes.items()):
        if bool(old.path(header)) != bool(new.path(header)):
            yield Finding("header", header, "removed" if old.path(header) else "added", "", tuple(uses))


def names(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """Identifiers of torch_backend's that only one version's headers have, among those that it includes."""
    before, after = old.words(), new.words()
    for word in sorted((before ^ after) & sources.names.keys()):
        yield Finding("name", word, "removed" if word in before else "added", "", _at(sources.names, word))


def python(old: Modules, new: Modules, sources: Sources) -> Iterator[Finding]:
    """What Python code uses: whether it is there, and which parameters it has."""
    seams = sources.seams
    for name in sorted(sources.python.keys() | seams.keys()):
        uses = (*sources.python.get(name, ()), *(seams[name][1:] if name in seams else ()))
        before, after = old.find(name), new.find(name)
        if (before is None) != (after is None):
            yield Finding("python", name, "removed" if before else "added", "", uses)
        elif before and after and _matters(name, before, after, sources):
            detail = " -> ".join(f"({', '.join(found.parameters or ())})" for found in (before, after))
            yield Finding("python", name, "changed", detail, uses)


def _matters(name: str, before: Definition, after: Definition, sources: Sources) -> bool:
    """A private function may be one that we replace: any other parameter counts. A seam's expected ones are known."""
    if name in sources.seams:
        expected = sources.seams[name][0]
        return (before.parameters or ())[: len(expected)] != (after.parameters or ())[: len(expected)]
    private = any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    gone = set(before.parameters or ()) - set(after.parameters or ())
    return before.parameters != after.parameters if private else bool(gone) and after.parameters is not None


def _of_operator(op: str, sources: Sources, every_overload: bool = True) -> tuple[Use, ...]:
    """Where an overload is named, as itself, as C++ names it, or by the name that its overloads share."""
    name = op.removeprefix("aten::")
    ways = dict.fromkeys((name, name.replace(".", "_"), _base(name) if every_overload else name))
    if "." not in name and not every_overload:  # an overload without a name, of an operator that has others
        ways = {}
    return tuple(dict.fromkeys(use for way in ways for use in sources.operators.get(way, ())))


def _base(op: str) -> str:
    return op.removeprefix("aten::").split(".")[0]


def _at(table: Mapping[str, list[Use]], name: str) -> tuple[Use, ...]:
    return tuple(table.get(name, ()))


def _change(name: str, before: Iterable[str], after: Iterable[str]) -> Literal["added", "removed", "changed"]:
    return "changed" if name in before and name in after else "removed" if name in before else "added"


def _different(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
