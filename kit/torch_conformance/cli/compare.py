"""``compare``: what is better and what is worse in the second of two reports, or several side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.table import Table
from rich.text import Text

from torch_conformance.cli import output
from torch_conformance.cli.measure import are_measurements, show_differences
from torch_conformance.report import comparison, matrix
from torch_conformance.report.findings import Report

if TYPE_CHECKING:
    from torch_conformance.report.comparison import Change

_FILE = click.Path(path_type=Path)
_MOST_SHOWN = 40


@click.command(short_help="Compare reports of check --json.")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="OLD NEW [MORE...]")
@click.option("--badge", type=_FILE, help="Write an SVG with the level that the last has reached.")
@click.option("--html", "html_file", type=_FILE, help="Write a page with a column for each report.")
@click.option("--verbose", "-v", is_flag=True, help="List every change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; of two reports.")
def compare(files: tuple[Path, ...], badge: Path | None, html_file: Path | None, verbose: bool, as_json: bool) -> None:
    """Compare reports that `check --json` wrote: of versions, or of devices.

    Of two it prints what is better and what is worse in the second; tests that only one run has are counted and not
    judged. The exit code is 1 if a test is worse, or the kernel of an operator comes from further away (native,
    generated, composite, fallback). Of more it prints a table of levels.

    Of two reports of `torch-conformance measure --json` it prints what is slower or faster by more than the spread of
    both explains, and the exit code is 1 if anything is slower.

    JSON: that of torch_conformance.report.comparison.Comparison.to_json.
    """
    if len(files) < 2 or (as_json and len(files) > 2):
        output.fail("Give two reports of check --json" + (", for --json no more." if as_json else ", or more."), code=2)
    if are_measurements(files[0]):
        show_differences(files[0], files[-1])
    reports = [_read(file) for file in files]
    if badge is not None:
        badge.write_text(comparison.badge(reports[-1]), encoding="utf-8")
    if html_file is not None:
        matrix.write(reports, html_file)
    if len(reports) == 2:
        _show_changes(*reports, verbose=verbose, as_json=as_json)
    _show_levels(reports)


def _show_levels(reports: Sequence[Report]) -> None:
    """Print of each level, in each run, how many tests passed of those that apply, and how many do not."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("level", *(f"{report.device.name} {report.device.version}".strip() for report in reports)):
        table.add_column(heading, overflow="fold")
    for name, cells in matrix.levels(reports):
        table.add_row(name, *map(_text, cells))
    console = output.console()
    console.print(table)
    if warning := comparison.suites_differ(reports):
        console.print(Text(f"\n{warning}", style="yellow"))


def _text(cell: matrix.Cell) -> str:
    numbers = ((cell.not_offered, "not offered"), (cell.not_run, "not run"))
    parts = [f"{cell.passed:,} of {cell.applicable:,}"] if cell.applicable else []
    parts += [f"{number:,} {what}" for number, what in numbers if number]
    parts += [f"operators: {cell.split}"] if cell.split else []
    return ", ".join(parts) or "-"


def _show_changes(before: Report, after: Report, *, verbose: bool, as_json: bool) -> NoReturn:
    """Print what is different in the second of two reports, and end with 1 if anything is worse."""
    found = comparison.compare(before, after)
    if as_json:
        output.print_json(found.to_json())
        raise click.exceptions.Exit(1 if found.is_worse else 0)
    console = output.console()
    facts = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "old", "new"):
        facts.add_column(heading, overflow="fold")
    for name, (one, other) in found.facts.items():
        facts.add_row(name, one or "-", Text(other or "-", style="bold" if one != other else ""))
    console.print(facts)
    if warning := comparison.suites_differ([before, after]):
        console.print(Text(f"\n{warning}", style="yellow"))
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


def _read(file: Path) -> Report:
    try:
        return output.read_report(file)
    except (OSError, ValueError) as error:
        output.fail(f"{file} cannot be compared: {error}", code=2)


def _table(changes: "Sequence[Change]") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for change in changes:
        table.add_row(Text(change.what), f"{change.old} -> {change.new}", Text(change.why, style="dim"))
    return table
