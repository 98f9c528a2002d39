"""Choosing tests by patterns: part of an id, or with ``*`` and ``?`` all of it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from torch_conformance.levels import LEVELS

_FOLDERS = frozenset(level.folder for level in LEVELS)


def matches(test: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns means the test with this id."""
    return any(pattern in test or fnmatchcase(test, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Choice:
    """The tests of a run.

    Attributes:
        quick: leave out what takes long.
        patterns: of the ids; empty for all.
        named: the ids, if only some are wanted that no pattern means.
        done: ids of tests that a run before this has done.
        skipped: patterns of tests that are not to be run, and to be told.
    """

    quick: bool = False
    patterns: Sequence[str] = ()
    named: Collection[str] | None = None
    done: Collection[str] = frozenset()
    skipped: Sequence[str] = ()

    def has(self, test: str, *, is_thorough: bool) -> bool:
        """Whether the test with this id is one of them."""
        if (self.quick and is_thorough) or test in self.done:
            return False
        return (self.named is None or test in self.named) and (not self.patterns or matches(test, self.patterns))

    def skips(self, test: str) -> str | None:
        """The pattern because of which the test with this id is not run; None if it is."""
        return next((pattern for pattern in self.skipped if matches(test, [pattern])), None)


of_this_process = Choice()
"""What a worker is to run. Files that make tests by the thousand make no others, which would take pytest seconds."""


def files_with_matches(files: Iterable[Path], root: Path, patterns: Sequence[str]) -> list[Path]:
    """The files that may hold a test that one of the patterns means; all of them if there are no patterns.

    So that a run of one file need not load the others. ``root`` is the folder that ids are relative to.
    """
    if not patterns:
        return list(files)
    return [
        file for file in files if any(_may_match(file.relative_to(root).as_posix(), pattern) for pattern in patterns)
    ]


def files_with_tests(files: Iterable[Path], root: Path, tests: Iterable[str]) -> list[Path]:
    """The files that hold one of these tests. ``root`` is the folder that ids are relative to."""
    wanted = {test.partition("::")[0] for test in tests}
    return [file for file in files if file.relative_to(root).as_posix() in wanted]


def _may_match(file: str, pattern: str) -> bool:
    path = pattern.split("::")[0]
    if ".py" in path:
        return path in file or fnmatchcase(file, path)
    folder, separator, _ = path.partition("/")
    return file.startswith(f"{folder}/") if separator and folder in _FOLDERS else True
