"""What the subcommands share: importing torch without activating anything, errors, JSON, tables."""

import json
import sys
from collections.abc import Mapping
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 250  # columns: a line per entry, for grep and the like


def import_torch() -> str:
    """Import torch without its autoloading a device of ours, and return its version. Ends the command without torch."""
    from torch_backend.devices.suppression import suppressed

    try:
        with suppressed():
            import torch
    except ImportError as error:
        fail(f"torch cannot be imported: {error}", code=1)
    return torch.__version__


def fail(message: str, *, code: int) -> NoReturn:
    """End the command with ``message`` on stderr. Codes: 1 the command failed, 2 it was wrong."""
    print(f"torch-backend: {message}", file=sys.stderr)
    raise typer.Exit(code)


def print_json(value: object) -> None:
    """Print ``value`` for programs: no colour, no wrapping."""
    print(json.dumps(value, indent=2))


def console() -> Console:
    """Where tables go. Lines fold at the terminal's width; in a file or pipe they are long."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def count_table(counts: Mapping[str, int]) -> Table:
    """Two columns, and the total."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    table.add_row("total", f"{sum(counts.values()):,}", style="bold")
    return table
