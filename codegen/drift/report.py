"""Differences between versions of torch as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .compare import Finding

_SHOWN = 4
_CHANGES = ("added", "removed", "changed")


@dataclass(frozen=True)
class Step:
    """From one version of torch to another."""

    old: str
    new: str
    findings: Sequence[Finding]

    def lines(self) -> Iterable[str]:
        """The section of the page: what concerns us with its places, then the rest."""
        counted = sorted(Counter((finding.kind, finding.change) for finding in self.findings).items())
        counts = ", ".join(f"{kind} {change}: {number}" for (kind, change), number in counted) or "the same"
        yield from ("", f"## {self.old} to {self.new}", "", f"{counts.capitalize()}.")
        ours = [finding for finding in self.findings if finding.uses]
        for heading, guarded in (("Concerns torch_backend", False), ("Guarded", True)):
            if chosen := [finding for finding in ours if finding.guarded is guarded]:
                yield from ("", f"### {heading}", "", "| | change | where |", "|---|---|---|", *map(_row, chosen))
        others = [finding for finding in self.findings if not finding.uses]
        if others:
            yield from ("", "### Concerns nothing of torch_backend", "")
        for kind in dict.fromkeys(finding.kind for finding in others):
            for change in _CHANGES:
                if named := [f"`{f.what}`" for f in others if (f.kind, f.change) == (kind, change)]:
                    yield f"- {kind} {change}: {', '.join(named)}"


def page(steps: Sequence[Step]) -> str:
    """docs/reference/drift.md."""
    command = " ".join([steps[0].old, *(step.new for step in steps)])
    introduction = f"""\
# Changes of PyTorch

What the last versions of torch changed of what a backend is made of, and which lines of torch_backend that
concerned, as the sources are now. `python -m codegen.drift {command}` writes this page;
`make drift NEW=VERSION` tells the same of the installed torch and any other. Wheels are read, not imported:
headers, Python sources and torchgen's table of operators."""
    return "\n".join([introduction, *(line for step in steps for line in step.lines())]) + "\n"


def _row(finding: Finding) -> str:
    detail = f"`{finding.detail}`" if "(" in finding.detail else finding.detail
    places = ", ".join(map(str, finding.uses[:_SHOWN]))
    more = f" and {len(finding.uses) - _SHOWN} more" if len(finding.uses) > _SHOWN else ""
    return f"| `{finding.what}` | {finding.kind} {finding.change}{detail and ': '}{detail} | {places}{more} |"
