"""What the subcommands share: importing torch without activating anything, errors, JSON."""

import json
import sys
from typing import NoReturn

import typer


def import_torch() -> str:
    """Import torch without its autoloading a device of ours, and return its version. Ends the command without torch."""
    from torch_backend._suppression import suppressed

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
