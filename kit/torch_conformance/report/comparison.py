"""Two reports of ``check --json``: what is better in the new one, and what is worse."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch_conformance import coverage
from torch_conformance.levels import Level
from torch_conformance.report.findings import Report
from torch_conformance.results import FAILURES, Outcome, Result

_RANK: dict[Outcome, int] = dict.fromkeys(("not run", *FAILURES), 0) | {"known": 1, "not offered": 2, "passed": 3}
_KIND_RANK: Mapping[str, int] = {"native": 3, "generated": 2, "composite": 1, "fallback": 0}

Sense = Literal["worse", "better"]


@dataclass(frozen=True)
class Change:
    """A test, or the source of an operator, that is not as it was."""

    what: str
    old: str
    new: str
    sense: Sense
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """What two reports differ in.

    Attributes:
        facts: by name, of device and versions, the old and the new one.
        tests: whose outcome changed, of those that both runs have.
        operators: whose kernels come from elsewhere, of PyTorch's list of operators.
        added, removed: how many tests only one run has.
    """

    facts: Mapping[str, tuple[str, str]]
    tests: tuple[Change, ...]
    operators: tuple[Change, ...]
    added: int
    removed: int

    @property
    def is_worse(self) -> bool:
        """Whether anything that worked does not, or an operator fell back that did not."""
        return any(change.sense == "worse" for change in (*self.tests, *self.operators))

    def to_json(self) -> dict[str, Any]:
        """As JSON's types."""
        return {"version": 1, "is_worse": self.is_worse, **asdict(self)}


def compare(old: Report, new: Report) -> Comparison:
    """What is different in ``new``."""
    before, after = by_name(old), by_name(new)
    shared = [test for test in after if test in before]
    return Comparison(
        facts=_facts(old, new),
        tests=tuple(_test(test, before[test], after[test]) for test in shared if _differs(before[test], after[test])),
        operators=tuple(_operators([before[test] for test in shared], [after[test] for test in shared])),
        added=len(after) - len(shared),
        removed=len(before) - len(shared),
    )


def by_name(report: Report) -> dict[str, Result]:
    """The results of tests that were not skipped, by the test's id without the device's name."""
    return {_name(result, report): result for result in report.results if result.outcome != "skipped"}


def suites_differ(reports: Iterable[Report]) -> str | None:
    """What is to be said of reports of different suites; None if they are of one."""
    found = {report.suite or "unknown" for report in reports}
    if len(found) == 1:
        return None
    return f"The runs are of different suites ({', '.join(sorted(found))}): a test of one name may test other things."


def _name(result: Result, report: Report) -> str:
    """The test's id without the device's name, which PyTorch's tests have in theirs: two devices can be compared."""
    name = report.device.name
    return result.test.replace(f"{name.upper()}::", "::").replace(f"_{name}_", "_")


def _differs(old: Result, new: Result) -> bool:
    return old.outcome != new.outcome and not {old.outcome, new.outcome} <= FAILURES


def _test(test: str, old: Result, new: Result) -> Change:
    ranks = _RANK[old.outcome], _RANK[new.outcome]
    sense: Sense = "worse" if ranks[1] < ranks[0] else "better"
    return Change(test, old.outcome, new.outcome, sense, new.message)


def _operators(old: list[Result], new: list[Result]) -> list[Change]:
    before, after = (coverage.kinds(coverage.facts_of(results)) for results in (old, new))
    return [
        Change(op, before[op], kind, "worse" if _KIND_RANK[kind] < _KIND_RANK[before[op]] else "better")
        for op, kind in sorted(after.items())
        if op in before and before[op] != kind
    ]


def _facts(old: Report, new: Report) -> dict[str, tuple[str, str]]:
    return dict(zip(_facts_of(old), zip(_facts_of(old).values(), _facts_of(new).values(), strict=True), strict=True))


def _facts_of(report: Report) -> dict[str, str]:
    device = report.device
    return {
        "device": f"{device.name} {device.version}".strip(),
        "torch": device.torch,
        "torch_backend": device.torch_backend,
        "date": report.run.get("date", ""),
        "suite": report.suite,
        "options": " ".join(f"{key}={value}" for key, value in report.options.items()),
        "level reached": str(report.reached.number) if report.reached else "0",
    }


def _offered_up_to(level: Level, report: Report) -> str:
    """How much of the tests up to a level the device offers, where it is not all."""
    results = [result for result in report.results if 0 < result.level.number <= level.number]
    number = sum(result.outcome != "not offered" for result in results)
    return f", {100 * number // len(results)}% offered" if results and number < len(results) else ""


def badge(report: Report) -> str:
    """A small SVG for a README: the level that the device has reached."""
    level = report.reached
    shares = coverage.shares(coverage.facts_of(report.results))
    served = f", {shares['fallback']}% fallback" if shares else ""
    text = f"level {level.number} {level.name}{_offered_up_to(level, report)}{served}" if level else "no level"
    colour = "#1f8a4c" if report.ok and level else "#c62f2f"
    label = f"torch_backend: {report.device.name}"
    widths = [round(6.6 * len(part)) + 14 for part in (label, text)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" '
        f'aria-label="{label}, {text}"><rect rx="3" width="{sum(widths)}" height="20" fill="#444d56"/>'
        f'<path d="M{widths[0]} 0h{widths[1] - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{widths[1] - 3}z" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{widths[0] / 2}" y="14">{label}</text><text x="{widths[0] + widths[1] / 2}" y="14">{text}</text>'
        "</g></svg>\n"
    )
