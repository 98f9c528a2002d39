"""Where the subcommands write: tables, JSON, errors."""

import json
import re
import sys
from pathlib import Path
from typing import IO, NoReturn, cast

import click
from rich.console import Console

from torch_conformance.report.findings import Report

_PIPE_WIDTH = 10_000  # columns: a line per entry, for grep and the like


def fail(message: str, *, code: int) -> NoReturn:
    """End the command with ``message`` on stderr. Codes: 1 the command failed, 2 it was wrong."""
    print(f"{click.get_current_context().find_root().info_name}: {message}", file=sys.stderr)
    raise click.exceptions.Exit(code)


def print_json(value: object) -> None:
    """Print ``value`` for programs: no colour, no wrapping."""
    print(json.dumps(value, indent=2))


def read_report(file: Path) -> Report:
    """The report in a file. Raises ValueError if it has none, OSError if it cannot be read."""
    return Report.from_json(json.loads(file.read_text(encoding="utf-8")))


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
