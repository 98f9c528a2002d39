"""Choosing tests by patterns: part of an id, or with ``*`` and ``?`` all of it."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from torch_conformance.levels import LEVELS

_FOLDERS = frozenset(level.folder for level in LEVELS)


def matches(test: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns means the test with this id."""
    return any(pattern in test or fnmatchcase(test, pattern) for pattern in patterns)


def files_with_matches(files: Iterable[Path], root: Path, patterns: Sequence[str]) -> list[Path]:
    """The files that may hold a test that one of the patterns means; all of them if there are no patterns.

    So that a run of one file need not load the others. ``root`` is the folder that ids are relative to.
    """
    if not patterns:
        return list(files)
    return [
        file for file in files if any(_may_match(file.relative_to(root).as_posix(), pattern) for pattern in patterns)
    ]


def _may_match(file: str, pattern: str) -> bool:
    path = pattern.split("::")[0]
    if ".py" in path:
        return path in file or fnmatchcase(file, path)
    folder, separator, _ = path.partition("/")
    return file.startswith(f"{folder}/") if separator and folder in _FOLDERS else True
