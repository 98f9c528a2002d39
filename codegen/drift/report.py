"""Differences between versions of torch as text, JSON and a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .compare import Finding

_SHOWN = 4


@dataclass(frozen=True)
class Step:
    """From one version of torch to another."""

    old: str
    new: str
    findings: Sequence[Finding]

    @property
    def concerns(self) -> list[Finding]:
        """Those that touch lines of ours which no guard protects."""
        return [finding for finding in self.findings if finding.uses and not finding.guarded]

    @property
    def guarded(self) -> list[Finding]:
        """Those that our lines are prepared for."""
        return [finding for finding in self.findings if finding.guarded]

    @property
    def others(self) -> list[Finding]:
        """Those that concern nothing of ours."""
        return [finding for finding in self.findings if not finding.uses]

    def to_json(self) -> dict[str, object]:
        """A value for the json module."""
        return {"old": self.old, "new": self.new, "findings": [finding.to_json() for finding in self.findings]}

    def __str__(self) -> str:
        """For people: what concerns us with its places, then the rest."""
        lines = [f"torch {self.old} -> {self.new}: {counts(self.findings)}"]
        for heading, chosen in (
            ("concerns torch_backend", self.concerns),
            ("concerns torch_backend, which asks first what this torch has", self.guarded),
            ("concerns nothing of torch_backend", self.others),
        ):
            if chosen:
                lines += ["", f"{heading} ({len(chosen)})"]
                for finding in chosen:
                    lines.append(f"  {finding.kind} {finding.change}: {finding.what}")
                    lines += [f"      {finding.detail}"] if finding.detail else []
                    lines += [f"      {places(finding)}"] if finding.uses else []
        return "\n".join(lines)


def counts(findings: Iterable[Finding]) -> str:
    """``"3 operators added, 1 header removed"``."""
    counted = Counter((finding.kind, finding.change) for finding in findings)
    return ", ".join(f"{number} {kind} {change}" for (kind, change), number in sorted(counted.items())) or "the same"


def places(finding: Finding) -> str:
    """The first places, and how many more there are."""
    shown = ", ".join(map(str, finding.uses[:_SHOWN]))
    return f"{shown} and {len(finding.uses) - _SHOWN} more" if len(finding.uses) > _SHOWN else shown


def page(steps: Sequence[Step]) -> str:
    """docs/reference/drift.md."""
    command = " ".join([steps[0].old, *(step.new for step in steps)])
    lines = [
        "# Changes of PyTorch",
        "",
        "What the last versions of torch changed of what a backend is made of, and which lines of torch_backend that",
        f"concerned, as the sources are now. `python -m codegen.drift --markdown {command}` writes this page;",
        "`make drift NEW=VERSION` tells the same of the installed torch and any other. Wheels are read, not imported:",
        "headers, Python sources and torchgen's table of operators.",
    ]
    for step in steps:
        lines += ["", f"## {step.old} to {step.new}", "", f"{counts(step.findings).capitalize()}."]
        for heading, chosen in (("Concerns torch_backend", step.concerns), ("Guarded", step.guarded)):
            if chosen:
                lines += ["", f"### {heading}", "", "| | change | where |", "|---|---|---|"]
                lines += [
                    f"| {_code(finding.what)} | {finding.kind} {finding.change}{_detail(finding)} | {places(finding)} |"
                    for finding in chosen
                ]
        if step.others:
            lines += ["", "### Concerns nothing of torch_backend", ""]
            for kind in dict.fromkeys(finding.kind for finding in step.others):
                for change in ("added", "removed", "changed"):
                    named = [_code(f.what) for f in step.others if (f.kind, f.change) == (kind, change)]
                    lines += [f"- {kind} {change}: {', '.join(named)}"] if named else []
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`"


def _detail(finding: Finding) -> str:
    return ": " + (_code(finding.detail) if "(" in finding.detail else finding.detail) if finding.detail else ""
