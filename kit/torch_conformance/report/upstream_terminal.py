"""What PyTorch's own tests found, for people at a terminal."""

from rich.console import Console
from rich.text import Text

from torch_conformance.report import terminal
from torch_conformance.upstream import UpstreamReport


def show(report: UpstreamReport, console: Console, verbose: bool = False) -> None:
    """Print the report: counts by file, failures by cause, and the verdict last. ``verbose`` adds every failure."""
    console.print(Text(f"PyTorch's tests in {report.checkout} on {report.device.name}", style="bold"))
    files = report.groups()
    console.print(terminal.counts_table({"file": list(files)}, list(files.values())))
    terminal.show_causes(report, console, verbose)
    terminal.show_not_offered(report, console)
    for text in report.notes:
        console.print(Text(f"\n{text}", style="yellow"))
    terminal.show_end(report, console)
