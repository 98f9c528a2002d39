"""What the demo prints after training."""

import torch
from comparison import Comparison, seconds
from inspection import Inspection
from rich.console import Console
from rich.table import Table

from torch_backend import fallback, operators


def show_comparison(console: Console, device: torch.device, comparison: Comparison, tolerance: float) -> None:
    """Accuracy, time and curves, side by side."""
    table = Table("", device.type, "native cpu", title="The same training from the same seeds", title_justify="left")
    sides = (comparison.device, comparison.native)
    table.add_row("held-out accuracy", *(f"{runs[0].accuracies[-1]:.2%}" for runs in sides))
    table.add_row("last loss", *(f"{runs[0].losses[-1]:.6f}" for runs in sides))
    table.add_row("time, median", *(f"{seconds(runs):.2f} s" for runs in sides))
    console.print(table)
    lines = (
        f"Time on {device.type} / time on native CPU: {comparison.ratio:.2f}",
        f"Largest difference of the loss curves: {comparison.difference:.1e} (at most {tolerance:.0e} allowed)",
    )
    console.print("\n".join(lines), highlight=False)


def show_kernels(console: Console, inspection: Inspection) -> None:
    """Where the kernels of one epoch came from."""
    table = Table(
        "kernel source",
        "calls",
        "share",
        "ops",
        "most called",
        title="Operator calls of one epoch",
        title_justify="left",
    )
    for column in table.columns[1:4]:
        column.justify = "right"
    for source, calls in inspection.calls.by_source().items():
        entries = [entry for entry in inspection.calls.entries if entry.source == source]
        top = ", ".join(f"{_short(entry)} {entry.calls:,}" for entry in entries[:4])
        table.add_row(source, f"{calls:,}", f"{calls / inspection.calls.calls:.1%}", str(len(entries)), top)
    console.print(table)


def _short(entry: operators.OperatorCalls) -> str:
    return entry.op.removeprefix("aten::")


def show_fallbacks(console: Console) -> None:
    """What ran on the CPU instead of the device, in the whole demo."""
    console.print(f"CPU fallback: {_indented(str(fallback.report()))}", highlight=False)


def _indented(text: str) -> str:
    return text if "\n" not in text else "\n" + "\n".join(f"  {line}" for line in text.splitlines())


def show_memory(console: Console, inspection: Inspection) -> None:
    """The most that was allocated at once."""
    console.print(f"Peak device memory: {inspection.peak_bytes / 2**20:.2f} MiB", highlight=False)
