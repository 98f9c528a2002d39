"""Every difference between two versions of torch that may matter to a backend, with where torch_backend meets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch_backend.declarations import Declarations, difference, load

from .headers import Headers
from .modules import VALUE, Modules, Parameters
from .uses import Sources, Use

Kind = Literal[
    "operator", "structured group", "dispatch stub", "virtual function", "autocast", "header", "name", "python"
]


@dataclass(frozen=True)
class Finding:
    """One difference: of what, its name in PyTorch, both forms or what is to be done, our lines that it concerns."""

    kind: Kind
    what: str
    change: Literal["added", "removed", "changed"]
    detail: str = ""
    uses: Sequence[Use] = ()

    @property
    def guarded(self) -> bool:
        """Whether every line that it concerns asks first what this torch has."""
        return bool(self.uses) and all(use.guarded for use in self.uses)


def findings(old: Path, new: Path, sources: Sources) -> list[Finding]:
    """What differs between the torch of two folders like site-packages (half a minute). Raises ValueError for none."""
    included = frozenset(sources.includes)
    headers = Headers(old / "torch" / "include", included), Headers(new / "torch" / "include", included)
    return [
        *operators(load(old), load(new), sources),
        *stubs(*headers, sources),
        *virtuals(*headers, sources),
        *autocast(*headers, sources),
        *includes(*headers, sources),
        *names(*headers, sources),
        *python(Modules(old), Modules(new), sources),
    ]


def _differences(
    kind: Kind, old: Mapping[str, str], new: Mapping[str, str], uses: Mapping[str, Sequence[Use]]
) -> Iterator[Finding]:
    """What only one version has, or each in another form."""
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            change: Literal["added", "removed", "changed"] = (
                "added" if name not in old else "removed" if name not in new else "changed"
            )
            detail = " -> ".join(filter(None, (old.get(name), new.get(name))))
            yield Finding(kind, name, change, detail, uses.get(name, ()))


def operators(old: Declarations, new: Declarations, sources: Sources) -> Iterator[Finding]:
    """Overloads, and which of them are parts of structured groups."""
    changes = difference(old, new)
    kept = {_base(entry.op) for entry in new}
    for entry in changes.added:
        duty = f"; a device {entry.requirement} have a kernel" if entry.requirement != "need not" else ""
        yield Finding("operator", entry.op, "added", entry.schema + duty)
    for entry in changes.removed:
        uses = _of_operator(entry.op, sources, every_overload=_base(entry.op) not in kept)
        yield Finding("operator", entry.op, "removed", entry.schema, uses)
    forms = [(change.op, f"{change.old.schema} -> {change.new.schema}") for change in changes.changed_schema]
    forms += [
        (change.op, f"a device {change.old.requirement} -> {change.new.requirement} have a kernel")
        for change in changes.changed_requirement
    ]
    for op, detail in forms:
        yield Finding("operator", op, "changed", detail, _of_operator(op, sources))
    groups = [{entry.op for entry in version if entry.structured} for version in (old, new)]
    for op in sorted(groups[0] ^ groups[1]):
        detail = "" if op in old and op in new else f"the operator is {'removed' if op in old else 'added'}"
        change: Literal["added", "removed"] = "removed" if op in groups[0] else "added"
        yield Finding("structured group", op, change, detail, _of_operator(op, sources))


def stubs(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """DispatchStubs, by which PyTorch's own kernels call one for the device."""
    return _differences("dispatch stub", old.stubs(), new.stubs(), sources.names)


def virtuals(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """Virtual functions of the classes that torch_backend derives from."""
    for base, derived in sorted(sources.bases.items()):
        before, after = old.virtuals(base), new.virtuals(base)
        if before is None or after is None:
            if before is not after:
                yield Finding("virtual function", base, "added" if after else "removed", "the whole class", derived)
            continue
        known = {function.name for function in before.values()}
        for key in sorted(before.keys() ^ after.keys()):
            function = after.get(key) or before[key]
            ours = sources.overrides(base, function.name)
            if key in before:
                yield Finding("virtual function", f"{base}::{key}", "removed", "", ours)
                continue
            detail = "another signature" if function.name in known else "may be overridden"
            detail = "has to be implemented" if function.pure else detail
            yield Finding("virtual function", f"{base}::{key}", "added", detail, ours or derived)


def autocast(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """The lists of operators for which autocast chooses a dtype."""
    before, after = old.autocast(), new.autocast()
    for name in sorted(before.keys() | after.keys()):
        ops = before.get(name, frozenset()), after.get(name, frozenset())
        uses = sources.names.get(f"AT_FORALL_{name}") or sources.names.get("KERNEL_PRIVATEUSEONE", [])
        for op in sorted(ops[0] ^ ops[1]):
            yield Finding("autocast", op, "removed" if op in ops[0] else "added", f"AT_FORALL_{name}", uses)


def includes(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """The headers that torch_backend includes."""
    before, after = ({name: "" for name in sources.includes if version.path(name)} for version in (old, new))
    return _differences("header", before, after, sources.includes)


def names(old: Headers, new: Headers, sources: Sources) -> Iterator[Finding]:
    """Identifiers of torch_backend's that only one version's headers have, among those that it includes."""
    before, after = (dict.fromkeys(version.words() & sources.names.keys(), "") for version in (old, new))
    return _differences("name", before, after, sources.names)


def python(old: Modules, new: Modules, sources: Sources) -> Iterator[Finding]:
    """What Python code uses: whether it is there, and which parameters it has."""
    for name in sorted(sources.python.keys() | sources.seams.keys()):
        expected, *seam = sources.seams.get(name, (None,))
        uses = (*sources.python.get(name, ()), *seam)
        before, after = old.find(name), new.find(name)
        if (before is None) != (after is None):
            yield Finding("python", name, "removed" if after is None else "added", "", uses)
        elif before is not None and after is not None and _matters(name, expected, before, after):
            detail = " -> ".join(f"({', '.join(parameters)})" for parameters in (before, after))
            yield Finding("python", name, "changed", detail, uses)


def _matters(name: str, expected: tuple[str, ...] | None, before: Parameters, after: Parameters) -> bool:
    """A private function may be one that we replace: any other parameter counts. A seam's expected ones are known."""
    if expected is not None:
        return before[: len(expected)] != after[: len(expected)]
    private = any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    return before != after if private else bool({*before} - {*after, *VALUE}) and after != VALUE


def _of_operator(op: str, sources: Sources, every_overload: bool = True) -> Sequence[Use]:
    """Where an overload is named, as itself, as C++ names it, or by the name that its overloads share."""
    name = op.removeprefix("aten::")
    if "." not in name and not every_overload:  # an overload without a name, of an operator that has others
        return ()
    ways = dict.fromkeys((name, name.replace(".", "_"), _base(name) if every_overload else name))
    return tuple(dict.fromkeys(use for way in ways for use in sources.operators.get(way, ())))


def _base(op: str) -> str:
    return op.removeprefix("aten::").split(".")[0]
