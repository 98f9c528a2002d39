"""What the subcommands share: importing torch without activating anything, errors, JSON, tables."""

import json
import re
import sys
import warnings
from collections.abc import Mapping
from typing import IO, NoReturn, cast

import click
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 10_000  # columns: a line per entry, for grep and the like


def import_torch() -> str:
    """Import torch without its autoloading a device of ours, and return its version. Ends the command without torch."""
    from torch_backend.devices.suppression import suppressed

    try:
        with suppressed(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # these commands do without
            import torch
    except ImportError as error:
        fail(f"torch cannot be imported: {error}", code=1)
    return torch.__version__


def fail(message: str, *, code: int) -> NoReturn:
    """End the command with ``message`` on stderr. Codes: 1 the command failed, 2 it was wrong."""
    print(f"torch-backend: {message}", file=sys.stderr)
    raise click.exceptions.Exit(code)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(value: object) -> None:
    """Print ``value`` for programs: no colour, no wrapping."""
    print(json.dumps(value, indent=2))


class _WithoutTrailingBlanks:
    """A text file to which rich writes whole lines, padded to the width of their column."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def flush(self) -> None:
        self._file.flush()


def console() -> Console:
    """Where tables go. Lines fold at the terminal's width; in a file or pipe each entry is one line."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=_PIPE_WIDTH, file=cast("IO[str]", _WithoutTrailingBlanks(sys.stdout)))


def count_table(counts: Mapping[str, int]) -> Table:
    """Two columns, and the total."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    table.add_row("total", f"{sum(counts.values()):,}", style="bold")
    return table
