"""What PyTorch's own tests found, for people at a terminal."""

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_backend.testing.results import count, failed
from torch_backend.testing.upstream import UpstreamReport

_SHOWN_CAUSES = 20
_SHOWN_REASONS = 12


def show(report: UpstreamReport, console: Console, verbose: bool = False) -> None:
    """Print the report: counts by file, failures by cause, and the verdict last. ``verbose`` adds every failure."""
    console.print(Text(f"PyTorch's tests in {report.checkout} on {report.device.name}", style="bold"))
    console.print(_files(report))
    causes = report.causes()
    if causes:
        console.print(Text("\nFailures by cause:", style="bold red"))
        for text, results in causes if verbose else causes[:_SHOWN_CAUSES]:
            console.print(Text(f"  {len(results):>5,}  {text}"))
            for result in results if verbose else results[:1]:
                console.print(Text(f"         {result.test}: {result.message}", style="dim"))
        if len(causes) > _SHOWN_CAUSES and not verbose:
            console.print(f"  ... and {len(causes) - _SHOWN_CAUSES} more causes; --verbose shows all.")
    reasons = Counter(result.message for result in report.results if result.outcome == "not offered")
    if reasons:
        console.print(Text("\nNot offered, so not tested:", style="bold"))
        for reason, number in reasons.most_common(_SHOWN_REASONS):
            console.print(Text(f"  {number:>5,}  {reason}", style="dim"))
    for text in report.notes:
        console.print(Text(f"\n{text}", style="yellow"))
    for text in report.problems:
        console.print(Text(f"\n{text}", style="red"))
    total = count(report.results)
    console.print(
        Text(
            f"\n{total['passed']:,} passed, {failed(total):,} failed, {total['known']:,} known failures, "
            f"{total['not offered']:,} not offered, {total['not run']:,} not run, {report.seconds:.0f} s.",
            style="green" if report.ok else "bold red",
        )
    )


def _files(report: UpstreamReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    for heading in ("passed", "failed", "known", "not offered", "not run", "seconds"):
        table.add_column(heading, justify="right")
    for file, results in report.files().items():
        counts = count(results)
        numbers = (counts["passed"], failed(counts), counts["known"], counts["not offered"], counts["not run"])
        seconds = sum(result.seconds for result in results)
        table.add_row(file, *(f"{number:,}" if number else "-" for number in numbers), f"{seconds:.1f}")
    return table
