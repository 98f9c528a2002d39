"""A report as one HTML page that needs nothing else: styles and scripts are in it, and it loads nothing."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from jinja2 import Environment, StrictUndefined

from torch_conformance import coverage, promises
from torch_conformance.features import FEATURES, Feature
from torch_conformance.levels import FROM_DEVICE_ON
from torch_conformance.report import programs, treemap
from torch_conformance.report.findings import Findings, verdict_on
from torch_conformance.results import FAILURES, Result, by_function, count, failed, totals

_MOST_FUNCTIONS = 4
_MOST_TILES = 60
_MOST_IN_TABLE = 10
_TREEMAP_RATIO = 3.0


def write(report: Findings, path: Path) -> None:
    """Write the report to ``path``."""
    path.write_text(render(report), encoding="utf-8")


def render(report: Findings) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    facts = coverage.facts_of(report.results)
    causes = _causes(report)
    fallbacks = [cost for cost in coverage.costliest_fallbacks(facts, _MOST_TILES) if cost.seconds > 0]
    return environment.from_string(template).render(
        report=report,
        device=report.device,
        totals=totals(report.results),
        causes=causes,
        most_functions=_MOST_FUNCTIONS,
        anchors={failure["result"].test: failure["anchor"] for cause in causes for failure in cause["failures"]},
        suite=getattr(report, "suite", ""),
        features=_features(report),
        parts=_parts(report, bool(facts)),
        groups=[_group(name, results) for name, results in report.groups().items()],
        operators=_shares(coverage.entries_by_standing(facts)) if facts else [],
        fallbacks=fallbacks[:_MOST_IN_TABLE],
        tiles=list(
            zip(fallbacks, treemap.rectangles([cost.seconds for cost in fallbacks], _TREEMAP_RATIO), strict=True)
        ),
        seconds_of_fallbacks=sum(cost.seconds for cost in fallbacks),
        slowest=coverage.slowest(facts),
        slow_kernels=coverage.slow_kernels(facts),
        dtypes=coverage.dtypes(facts),
        matrix=[_row(op, cells) for op, cells in coverage.matrix(facts).items()],
        directions=get_args(coverage.Direction),
        known=[result for result in report.results if result.outcome == "known"],
        reasons=report.not_offered(),
        failure_outcomes=FAILURES,
    )


def _causes(report: Findings) -> list[dict[str, Any]]:
    """The failures by cause, each with what the page says of it."""
    anchors: set[str] = set()
    return [
        {
            "text": text,
            "functions": by_function(results),
            "failures": [_failure(result, report, anchors) for result in results],
        }
        for text, results in report.causes()
    ]


def _failure(result: Result, report: Findings, anchors: set[str]) -> dict[str, Any]:
    return {
        "result": result,
        "anchor": _anchor(result.test, anchors),
        "promises": list(promises.of_test(result.test)) if report.device.is_library else [],
        "command": report.command_for(result.test),
        "program": programs.program_for(result, report.device, report.imports),
    }


def _anchor(test: str, taken: set[str]) -> str:
    """The id of a failure in the page, the same in each report of the test, unless another test has it."""
    anchor = plain = re.sub(r"[^\w.:/-]+", "-", test).strip("-")
    number = 1
    while anchor in taken:
        number += 1
        anchor = f"{plain}-{number}"
    taken.add(anchor)
    return anchor


def _features(report: Findings) -> list[tuple[Feature, str | None]]:
    """What a device of PyTorch has, and why not what it has not; nothing for one of torch_backend's, which has all."""
    said = {} if report.device.is_library else report.device.features
    return [(FEATURES[name], lacks) for name, lacks in said.items() if name in FEATURES]


def _parts(report: Findings, has_operators: bool) -> list[tuple[str, str]]:
    """The id and title of each part of the page that there is."""
    parts = (
        ("failures", "Failures", bool(report.failures)),
        ("operators", "Operators", has_operators),
        ("known", "Known failures", any(result.outcome == "known" for result in report.results)),
        ("features", "Features", bool(_features(report))),
        ("not-offered", "Not offered", bool(report.not_offered())),
        ("tests", "Tests", True),
    )
    return [(name, title) for name, title, is_there in parts if is_there]


def _group(name: str, results: Sequence[Result]) -> dict[str, Any]:
    """A level, or a file of PyTorch's tests."""
    counts = count(results)
    facts = coverage.facts_of(results)
    level = next((level for level in FROM_DEVICE_ON if level.name == name), None)
    return {
        "name": f"{level.number} {name}" if level else name,
        "means": level.means if level else "",
        "verdict": verdict_on(results),
        "counts": counts,
        "failed": failed(counts),
        "operators": _shares(coverage.entries_by_standing(facts)) if facts else [],
        # The matrix shows the tests of operators, which are many.
        "tests": [result for result in results if "op" not in result.facts],
    }


def _shares(operators: Mapping[Any, int]) -> list[tuple[str, int, float]]:
    """Standing, number of operators, per cent."""
    total = sum(operators.values())
    return [(standing, number, 100 * number / total) for standing, number in operators.items()]


def _row(op: str, cells: Mapping[str, Mapping[Any, coverage.Cell]]) -> dict[str, Any]:
    """A row of the matrix; ``has`` is what the filter asks for."""
    shown = {
        dtype: {direction: (cell, _shown(cell)) for direction, cell in by_direction.items()}
        for dtype, by_direction in cells.items()
    }
    has = sorted({name for by_direction in shown.values() for _, name in by_direction.values()})
    return {"op": op, "cells": shown, "has": has}


def _shown(cell: coverage.Cell) -> str:
    """The name of a cell's style."""
    if cell.outcome in FAILURES:
        return "failed"
    return (cell.kind or "none") if cell.outcome == "passed" else cell.outcome.replace(" ", "-")
