"""The results of a run as they come: a file of JSON lines, which a run that is interrupted or killed leaves behind.

The first line says which run it is, so that another does not go on with it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch_conformance.results import Result


class Journal:
    """Writes each result to a file.

    Attributes:
        path: of the file.
        before: the results that it had when it was opened.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], *, resume: bool) -> None:
        """``run``: what the run depends on, JSON's types. ``resume``: go on with what the file has, else begin anew.

        Raises ValueError if the file is of another run, or is not there; OSError if it cannot be written.
        """
        self.path = path
        self.before = _read(path, run) if resume else ()
        # Written anew: a run that was killed may have left half a line.
        self._file = path.open("w", encoding="utf-8")
        self._write(run)
        for result in self.before:
            self.add(result)

    def add(self, result: Result) -> None:
        """Write a result."""
        self._write(asdict(result))

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        """End it."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file: the report has all that is in it."""
        self.path.unlink()


def _read(path: Path, run: Mapping[str, Any]) -> tuple[Result, ...]:
    if not path.is_file():
        raise ValueError(f"There is nothing to go on with: a run that has not ended leaves {path}.")
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    try:
        first, *results = map(json.loads, whole)
        found = tuple(Result(**result) for result in results)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} has no results of a run: {error}.") from None
    for key, value in run.items():
        if first.get(key) != value:
            raise ValueError(f"{path} is of a run with another {key}: {first.get(key)!r}, not {value!r}.")
    return found
