"""``torch-backend compare``: what is better and what is worse in the second of two reports."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from torch_backend.cli import _kit, _output

if TYPE_CHECKING:
    from torch_conformance import Report
    from torch_conformance.report.comparison import Change

_FILE = click.Path(path_type=Path)
_MOST_SHOWN = 40


@click.command(short_help="Compare two reports of check --json.")
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option("--badge", type=_FILE, help="Write an SVG with the level that NEW has reached.")
@click.option("--verbose", "-v", is_flag=True, help="List every change.")
@_output.json_option
def compare(old: Path, new: Path, badge: Path | None, verbose: bool, as_json: bool) -> None:
    """Compare two reports that `torch-backend check --json` wrote: of two versions, or of two devices.

    Tests that only one run has are counted and not judged. The exit code is 1 if a test is worse, or the kernel of an
    operator comes from further away (native, generated, composite, fallback).

    JSON: that of torch_conformance.report.comparison.Comparison.to_json.
    """
    _kit.require()
    from torch_conformance.report import comparison

    before, after = _read(old), _read(new)
    found = comparison.compare(before, after)
    if badge is not None:
        badge.write_text(comparison.badge(after), encoding="utf-8")
    if as_json:
        _output.print_json(found.to_json())
        raise click.exceptions.Exit(1 if found.is_worse else 0)
    console = _output.console()
    facts = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "old", "new"):
        facts.add_column(heading, overflow="fold")
    for name, (one, other) in found.facts.items():
        facts.add_row(name, one or "-", Text(other or "-", style="bold" if one != other else ""))
    console.print(facts)
    for title, changes in (("Tests", found.tests), ("Operators, by where their kernels come from", found.operators)):
        for sense, style in (("worse", "bold red"), ("better", "green")):
            part = [change for change in changes if change.sense == sense]
            if part:
                console.print(Text(f"\n{title}: {len(part):,} {sense}", style=style))
                console.print(_table(part if verbose else part[:_MOST_SHOWN]))
                if not verbose and len(part) > _MOST_SHOWN:
                    console.print(f"... and {len(part) - _MOST_SHOWN:,} more; --verbose shows all.")
    worse = sum(change.sense == "worse" for change in (*found.tests, *found.operators))
    better = len(found.tests) + len(found.operators) - worse
    text = f"\n{worse:,} worse, {better:,} better; {found.added:,} tests are new, {found.removed:,} are gone."
    console.print(Text(text, style="bold red" if worse else "green"))
    raise click.exceptions.Exit(1 if found.is_worse else 0)


def _read(file: Path) -> "Report":
    from torch_conformance import Report

    try:
        return Report.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        _output.fail(f"{file} cannot be compared: {error}", code=2)


def _table(changes: "Sequence[Change]") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for change in changes:
        table.add_row(Text(change.what), f"{change.old} -> {change.new}", Text(change.why, style="dim"))
    return table
