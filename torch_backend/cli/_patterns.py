"""Choosing operators by a name or pattern of the command line."""

import difflib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch_backend.cli import _output


def choose(overloads: Iterable[str], pattern: str | None) -> list[str]:
    """The overloads that ``pattern`` means, sorted; without one, those of namespace aten.

    An operator means all its overloads. Ends the command with code 2, with names that are close, if nothing matches.
    """
    known = sorted(overloads)
    if pattern is None:
        return [name for name in known if name.startswith("aten::")]
    full = pattern if "::" in pattern else f"aten::{pattern}"
    matches = _matcher(full)
    chosen = [name for name in known if matches(name)]
    if not chosen:
        names = sorted({*known, *(name.split(".")[0] for name in known)})
        close = difflib.get_close_matches(full, names, n=3, cutoff=0.7)
        _output.fail(
            f"No operator matches '{pattern}'." + (f" Did you mean {' or '.join(close)}?" if close else ""), code=2
        )
    return chosen


def _matcher(full: str) -> Callable[[str], bool]:
    if any(character in full for character in "*?["):
        return lambda name: fnmatchcase(name, full)
    return lambda name: full in (name, name.split(".")[0])
