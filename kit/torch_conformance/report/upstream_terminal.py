"""What PyTorch's own tests found, for people at a terminal."""

from rich.console import Console
from rich.text import Text

from torch_conformance.report import terminal
from torch_conformance.upstream import UpstreamReport

_SHOWN_CAUSES = 20


def show(report: UpstreamReport, console: Console, verbose: bool = False) -> None:
    """Print the report: counts by file, failures by cause, and the verdict last. ``verbose`` adds every failure."""
    console.print(Text(f"PyTorch's tests in {report.checkout} on {report.device.name}", style="bold"))
    files = report.groups()
    console.print(terminal.counts_table({"file": list(files)}, list(files.values())))
    causes = report.causes()
    if causes:
        console.print(Text("\nFailures by cause:", style="bold red"))
        for text, results in causes if verbose else causes[:_SHOWN_CAUSES]:
            console.print(Text(f"  {len(results):>5,}  {text}"))
            for result in results if verbose else results[:1]:
                console.print(Text(f"         {result.test}: {result.message}", style="dim"))
        if len(causes) > _SHOWN_CAUSES and not verbose:
            console.print(f"  ... and {len(causes) - _SHOWN_CAUSES} more causes; --verbose shows all.")
    terminal.show_not_offered(report, console)
    for text in report.notes:
        console.print(Text(f"\n{text}", style="yellow"))
    terminal.show_end(report, console)
