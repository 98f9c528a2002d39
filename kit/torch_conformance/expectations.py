"""Known failures of a device: ``expectations.toml`` beside its library, each entry with a reason.

::

    [[known]]
    test = "ops/test_forward.py::*linalg_eig*"   # a test's id, or a list of them; * and ? match
    reason = "eigenvectors are not implemented; due in firmware 2.1"
    device = "acme"                              # optional, where libraries of several devices lie in one folder
    count = 3                                    # optional: how many failures that is

An entry that matches no test, or one that passes, or not as many failures as it says, fails the run: it hides nothing
and does not outlive its reason.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch_conformance.levels import LEVELS
from torch_conformance.results import FAILURES, Result

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "expectations.toml"

UPSTREAM = "upstream"
"""How the ids of PyTorch's own tests start in an entry: "upstream/test_view_ops.py::*test_conj*"."""

KNOWN_FOLDERS = frozenset({UPSTREAM, *(level.folder for level in LEVELS)})
"""What an entry's pattern may start with."""

_KEYS = {"test", "reason", "device", "count"}


@dataclass(frozen=True)
class Expectation:
    """One known failure: a pattern of test ids, why they fail, and how many do, if that is said."""

    test: str
    reason: str
    count: int | None = None

    def matches(self, test: str) -> bool:
        """Whether the pattern means the test."""
        # An id's own brackets are no character class.
        return fnmatchcase(test.replace("[", "("), self.test.replace("[", "("))


def read(path: Path, device: str, also: Collection[str] = ()) -> tuple[Expectation, ...]:
    """The entries of a file that are about ``device``. ``also``: what the file may have besides, which others read.

    Raises ValueError, naming the file and the entry, for a file that is not as described above; OSError if it cannot be
    read.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    unknown = set(content) - {"known", *also}
    entries = content.get("known", [])
    if unknown or not isinstance(entries, list):
        raise ValueError(f"{path} has {', '.join(map(repr, sorted(unknown)))}; expected entries [[known]].")
    return tuple(
        Expectation(test, entry["reason"], entry.get("count"))
        for number, entry in enumerate(entries, start=1)
        if _checked(entry, f"{path}, entry {number}").get("device", device) == device
        for test in _tests(entry)
    )


def _tests(entry: dict[str, Any]) -> list[Any]:
    test = entry.get("test")
    return test if isinstance(test, list) else [test]


def _checked(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is {entry!r}; expected a table with {', '.join(sorted(_KEYS))}.")
    if unknown := set(entry) - _KEYS:
        raise ValueError(f"{where} has the key {sorted(unknown)[0]!r}; expected {', '.join(sorted(_KEYS))}.")
    for key, texts in {"test": _tests(entry), "reason": [entry.get("reason")]}.items():
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(f"{where} has no {key}: every known failure names its tests and says why they fail.")
    count = entry.get("count", 1)
    if type(count) is not int or count < 1:
        raise ValueError(f"{where} has the count {count!r}; expected the number of tests that fail, at least 1.")
    return entry


def apply(
    expectations: Sequence[Expectation], results: Sequence[Result], folders: Collection[str], partial: bool
) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """Mark the failures that are expected as known.

    Args:
        expectations: the entries.
        results: of the run.
        folders: how the ids of the tests that were run start: an entry for a level that was not run is not judged.
        partial: whether only some tests of these were chosen: then an entry may match none, or fewer than it says.

    Returns:
        the results, and what is wrong with entries.
    """
    matched: dict[Expectation, list[Result]] = {expectation: [] for expectation in expectations}
    marked = []
    for result in results:
        entry = next((entry for entry in expectations if entry.matches(result.test)), None)
        if entry is not None:
            matched[entry].append(result)
            if result.outcome in FAILURES:
                message = f"{entry.reason} ({result.message})" if result.message else entry.reason
                result = replace(result, outcome="known", message=message)
        marked.append(result)
    problems = []
    for entry, found in matched.items():
        if passed := [result.test for result in found if result.outcome == "passed"]:
            more = f" and {len(passed) - 1} more" if len(passed) > 1 else ""
            problems.append(
                f"Expected to fail, but passed: {passed[0]}{more}. Narrow or remove the entry '{entry.test}'."
            )
        folder = entry.test.split("/", 1)[0]
        judged = folder in folders or folder not in KNOWN_FOLDERS
        failures = sum(result.outcome in FAILURES for result in found)
        if not found and judged and not partial:
            problems.append(f"The entry '{entry.test}' matches no test. Correct or remove it.")
        elif entry.count is not None and not (0 if partial or not found else entry.count) <= failures <= entry.count:
            problems.append(
                f"The entry '{entry.test}' explains {failures} failures, and its count is {entry.count}. Correct it."
            )
    return tuple(marked), tuple(problems)
