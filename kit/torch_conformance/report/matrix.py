"""Several reports side by side: a row for each level, file and test, a column for each run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from torch_conformance import coverage
from torch_conformance.levels import FROM_DEVICE_ON, level_of
from torch_conformance.report import comparison
from torch_conformance.report.findings import Report
from torch_conformance.results import FAILURES, OUTCOMES, Outcome, Result, count, failed


@dataclass(frozen=True)
class Cell:
    """What a run says of a group of tests.

    Attributes:
        passed: of the tests that apply; what is known to fail is none of them.
        applicable: how many apply: all but what is not offered, skipped or not run.
        not_offered, not_run: how many do not apply, and how many are not known.
        served: of the operators of the group, how many are served in which way.
    """

    passed: int
    applicable: int
    not_offered: int
    not_run: int
    served: Mapping[coverage.Standing, int]

    @property
    def state(self) -> str:
        """The name of its style."""
        if not self.applicable:
            return "none"
        return "passed" if self.passed == self.applicable else "failed" if not self.passed else "some"

    @property
    def split(self) -> str:
        """Who served the operators: "62 native, 3 composite"; empty where there are none."""
        return ", ".join(f"{number:,} {standing}" for standing, number in self.served.items() if number)


def cell(results: Sequence[Result]) -> Cell:
    """What these results of a run come to."""
    counts = count(results)
    facts = coverage.facts_of(results)
    return Cell(
        passed=counts["passed"],
        applicable=counts["passed"] + failed(counts) + counts["known"],
        not_offered=counts["not offered"],
        not_run=counts["not run"] + counts["skipped"],
        served=coverage.entries_by_standing(facts) if facts else {},
    )


def levels(reports: Sequence[Report]) -> list[tuple[str, list[Cell]]]:
    """A row for each level that a run has."""
    there = [level for level in FROM_DEVICE_ON if any(level in report.levels for report in reports)]
    return [(f"{level.number} {level.name}", [cell(report.of_level(level)) for report in reports]) for level in there]


def write(reports: Sequence[Report], path: Path) -> None:
    """Write the page to ``path``."""
    path.write_text(render(reports), encoding="utf-8")


def render(reports: Sequence[Report]) -> str:
    """The page, which loads nothing."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files(__package__).joinpath("matrix.html.jinja").read_text(encoding="utf-8")
    by_name = [comparison.by_name(report) for report in reports]
    names = sorted(set().union(*by_name), key=lambda name: (level_of(name).number, name))
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(name.partition("::")[0], []).append(name)
    rows = [
        {
            "file": file,
            "level": level_of(file).name,
            "cells": [cell([results[name] for name in of_file if name in results]) for results in by_name],
            "differs": any(_differ([results.get(name) for results in by_name]) for name in of_file),
        }
        for file, of_file in files.items()
    ]
    tests = {file: [_row(name, by_name) for name in of_file] for file, of_file in files.items()}
    return environment.from_string(template).render(
        runs=[_run(report) for report in reports],
        suites_differ=comparison.suites_differ(reports),
        levels=levels(reports),
        files=rows,
        # "</" would end the script that it is in.
        tests=json.dumps({"outcomes": OUTCOMES, "tests": tests}, separators=(",", ":")).replace("</", "<\\/"),
    )


def _row(name: str, by_name: Sequence[Mapping[str, Result]]) -> list[Any]:
    """The test's name in its file, the number of its outcome in each run, -1 where there is none, and why it failed."""
    results = [of_run.get(name) for of_run in by_name]
    outcomes = [-1 if result is None else OUTCOMES.index(result.outcome) for result in results]
    why = [result.message if result is not None and result.outcome in FAILURES else "" for result in results]
    return [name.partition("::")[2], outcomes, why]


def _differ(results: Sequence[Result | None]) -> bool:
    outcomes: set[Outcome] = {result.outcome for result in results if result is not None}
    return len(outcomes) > 1 and not outcomes <= FAILURES


def _run(report: Report) -> dict[str, Any]:
    device = report.device
    facts = (
        f"torch {device.torch}" if device.torch else "",
        report.run.get("date", ""),
        "quick" if report.quick else "",
    )
    options = [f"{key}={value}" for key, value in report.options.items()]
    level = report.reached
    return {
        "name": f"{device.name} {device.version}".strip(),
        "facts": ", ".join(filter(None, (*facts, *options, f"suite {report.suite}" if report.suite else ""))),
        "reached": f"level {level.number} {level.name}" if level else "no level",
        "served": report.who_served(),
    }
