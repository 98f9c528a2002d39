"""A report for people at a terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from torch_conformance import coverage, promises
from torch_conformance.report.findings import Findings, Report
from torch_conformance.results import FAILURES, Outcome, Result, by_function, count, failed, totals

_STYLES = {"passed": "green", "failed": "bold red", "not offered": "dim", "not run": "yellow"}
_COLUMNS: tuple[Outcome, ...] = ("passed", "failed", "known", "not offered", "skipped", "not run")
_SHOWN_FAILURES = 25
_SHOWN_CAUSES = 20
_SHOWN_FUNCTIONS = 4
_SHOWN_CHARACTERS = 300
_SHOWN_REASONS = 12
_SHOWN_SLOW_KERNELS = 10


def show(report: Report, console: Console, verbose: bool = False) -> None:
    """Print the report: levels, coverage, failures, what is not offered, and the verdict last.

    ``verbose`` adds every test with what it proves, and the traceback of every failure.
    """
    console.print(Text(_title(report), style="bold"))
    if verbose:
        console.print(_every_test(report))
    console.print(_levels(report))
    _show_coverage(report, console)
    show_causes(report, console, verbose)
    _show_known(report, console)
    _show_features(report, console)
    show_not_offered(report, console)
    show_end(report, console)


def _title(report: Report) -> str:
    device = report.device
    what = f"{device.name} {device.version} by {device.vendor}" if device.vendor else device.name
    versions = f", torch {device.torch}" if device.torch else ""
    versions += f", torch_backend {device.torch_backend}" if device.torch_backend else ""
    options = "".join(f", {key}={value}" for key, value in report.options.items())
    number = len(device.properties)
    return f"{what}{options}: {number} device{'s' if number > 1 else ''}{versions}" if number else what


def _every_test(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("outcome", "test", "proves"):
        table.add_column(heading, overflow="fold")
    for result in report.results:
        style = "red" if result.outcome in FAILURES else _STYLES.get(result.outcome, "yellow")
        table.add_row(Text(result.outcome, style=style), escape(result.test), escape(result.proves))
    return table


def _levels(report: Report) -> Table:
    verdicts = [report.verdict(level) for level in report.levels]
    return counts_table(
        {
            "level": [f"{level.number} {level.name}" for level in report.levels],
            "verdict": [Text(verdict, style=_STYLES[verdict]) for verdict in verdicts],
        },
        [report.of_level(level) for level in report.levels],
    )


def counts_table(columns: Mapping[str, Sequence[str | Text]], groups: Sequence[Sequence[Result]]) -> Table:
    """A line per group of results, with how many of them ended in each way; ``columns`` come first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold")
    counted = [count(results) for results in groups]
    shown = [name for name in _COLUMNS if name != "skipped" or any(counts["skipped"] for counts in counted)]
    for heading in (*shown, "seconds"):
        table.add_column(heading, justify="right")
    for results, counts, *first in zip(groups, counted, *columns.values(), strict=True):
        numbers = [failed(counts) if name == "failed" else counts[name] for name in shown]
        seconds = sum(result.seconds for result in results)
        table.add_row(*first, *(f"{number:,}" if number else "-" for number in numbers), f"{seconds:.1f}")
    return table


def _show_coverage(report: Report, console: Console) -> None:
    facts = coverage.facts_of(report.results)
    if not facts:
        return
    console.print(Text("\nOperators by where their kernels come from:", style="bold"))
    console.print(Text(f"  {report.who_served()}", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    standings = coverage.entries_by_standing(facts)
    for standing, number in standings.items():
        style = "red" if standing == "failed" and number else ""
        table.add_row(Text(standing, style=style), f"{number:,}", f"{100 * number / sum(standings.values()):.1f}%")
    console.print(table)
    costs = coverage.costliest_fallbacks(facts)
    if costs:
        console.print(Text("\nFallbacks to the CPU that cost most:", style="bold"))
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("operator")
        for heading in ("calls", "bytes copied", "seconds"):
            table.add_column(heading, justify="right")
        for cost in costs:
            table.add_row(
                cost.op,
                f"{cost.calls:,}",
                f"{cost.bytes_copied:,}" if cost.bytes_copied else "-",
                f"{cost.seconds:.3f}",
            )
        console.print(table)
    _show_slow_kernels(coverage.slow_kernels(facts), console)


def _show_slow_kernels(found: Sequence[coverage.SlowKernel], console: Console) -> None:
    if not found:
        return
    console.print(Text("\nThe device's kernels that take longer than the CPU with its copies:", style="bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator")
    for heading in ("milliseconds", "of the CPU"):
        table.add_column(heading, justify="right")
    for entry in found[:_SHOWN_SLOW_KERNELS]:
        table.add_row(f"{entry.op} ({entry.dtype})", f"{entry.kernel:.3f}", f"{entry.fallback:.3f}")
    console.print(table)
    if len(found) > _SHOWN_SLOW_KERNELS:
        console.print(f"... and {len(found) - _SHOWN_SLOW_KERNELS:,} more; --html shows all.")


def show_causes(report: Findings, console: Console, verbose: bool) -> None:
    """Print the failures by cause, the most frequent first: of many, one of each and the tests it is in.

    ``verbose``: all failures, with tracebacks.
    """
    causes = report.causes()
    if not causes:
        return
    number = len(report.failures)
    console.print(Text(f"\nFailures by cause ({number:,} in {len(causes):,}):", style="bold red"))
    in_full = verbose or number <= _SHOWN_FAILURES
    shown = causes if in_full else causes[:_SHOWN_CAUSES]
    for text, results in shown:
        if len(results) > 1:
            functions = by_function(results)
            names = [f"{name} ({many:,})" for name, many in functions[:_SHOWN_FUNCTIONS]]
            more = [f"{len(functions) - _SHOWN_FUNCTIONS} more"] if len(functions) > _SHOWN_FUNCTIONS else []
            console.print(Text.assemble((f"\n{len(results):>6,}  ", "bold"), (text, "bold red")))
            console.print(Text(f"        {', '.join([*names, *more])}", style="dim"))
        for result in results if in_full else results[:1]:
            _show_failure(result, report, console, with_cause=len(results) > 1, verbose=verbose)
    if len(causes) > len(shown):
        left = f"{len(causes) - len(shown):,} more causes"
        console.print(f"\n... and {left}; --verbose shows all, --json and --html keep them.")


def _show_failure(result: Result, report: Findings, console: Console, *, with_cause: bool, verbose: bool) -> None:
    if not with_cause:
        console.print()
    number = "        " if with_cause else "     1  "
    console.print(Text.assemble(number, (result.test, "" if with_cause else "bold"), f"  {result.outcome}"))
    if result.proves:
        console.print(Text(f"          {result.proves}", style="dim"))
    is_long = not verbose and len(result.message) > _SHOWN_CHARACTERS and "\n" not in result.message
    message = f"{result.message[:_SHOWN_CHARACTERS]}..." if is_long else result.message
    console.print(Text(f"          {message}", style="red"))
    if report.device.is_library:
        for promise in promises.of_test(result.test):
            console.print(Text(f"          device.h says of {promise}", style="dim"))
    if command := report.command_for(result.test):
        console.print(Text(f"          {command}", style="cyan"))
    if verbose and result.details:
        console.print(Text(result.details))


def _show_features(report: Report, console: Console) -> None:
    """Print what PyTorch leaves to a device whether it has it, and what this one has."""
    features = report.device.features
    if report.device.is_library or not features:
        return
    there = [name for name, lacks in features.items() if lacks is None]
    console.print(Text(f"\nFeatures: {len(there)} of {len(features)}", style="bold"))
    console.print(Text(f"  has {', '.join(there) or 'none'}"))
    for name, lacks in features.items():
        if lacks is not None:
            console.print(Text(f"  no {name}: {lacks}", style="dim"))


def _show_known(report: Report, console: Console) -> None:
    known = [result for result in report.results if result.outcome == "known"]
    if known:
        console.print(Text("\nKnown failures:", style="bold"))
        for result in known:
            console.print(Text(f"  {result.test}: {result.message}"))


def show_not_offered(report: Findings, console: Console) -> None:
    """Print why how many tests were left out, the most first."""
    reasons = report.not_offered()
    if not reasons:
        return
    console.print(Text("\nNot offered, so not tested:", style="bold"))
    for reason, number in reasons[:_SHOWN_REASONS]:
        console.print(Text(f"  {number:>5,} {reason}", style="dim"))
    if len(reasons) > _SHOWN_REASONS:
        console.print(Text(f"  ... and {len(reasons) - _SHOWN_REASONS} more reasons.", style="dim"))


def show_end(report: Findings, console: Console) -> None:
    """Print the problems of the run, and last the verdict with how many tests ended in which way."""
    for problem in report.problems:
        console.print(Text(f"\n{problem}", style="red"))
    text = f"\n{report.verdict_text()} {totals(report.results)}, {report.seconds:.0f} s."
    if load := report.run.get("load"):
        console.print(Text(f"\nMeanwhile {load}.", style="dim"))
    console.print(Text(text, style="green" if report.ok else "bold red"))
