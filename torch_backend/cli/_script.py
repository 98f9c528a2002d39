"""Running a user's script within a subcommand."""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_backend.cli import _output


def check(script: str) -> None:
    """End the command with code 2 if there is no such file."""
    if not Path(script).is_file():
        _output.fail(f"There is no script {script}.", code=2)


def run(script: str, arguments: Sequence[str], unfinished: str) -> None:
    """Run the script as Python would. If it fails, the command ends with ``unfinished`` and code 1."""
    before, sys.argv = (sys.argv, sys.path), [script, *arguments]
    sys.path = [str(Path(script).resolve().parent), *sys.path]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            _output.fail(f"{script} has ended with {end.code}; {unfinished}", code=1)
    finally:
        sys.argv, sys.path = before
