"""The places where devices are looked for: what leads nowhere, and what is overlooked."""

import difflib
import glob
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata

from torch_backend.devices.discovery import ENTRY_POINT_GROUP, ENTRY_POINT_GROUPS, PATH_VARIABLE, Candidate, Origin
from torch_backend.diagnosis.finding import Finding, note, problem

_TORCH_GROUP = "torch.backends"
_PATTERN = "libtorch_backend_*.so"


def examine(candidates: Sequence[Candidate], environ: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with TORCH_BACKEND_PATH and with the entry points of packages."""
    for place in filter(None, environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        yield from _place(place)
    yield from _own_entry_point()
    yield from _groups_nobody_reads()
    yield from _names_found_twice(candidates)


def _place(place: str) -> Iterator[Finding]:
    if os.path.islink(place) and not os.path.exists(place):
        yield problem(
            PATH_VARIABLE,
            f"It names '{place}', a link to '{os.readlink(place)}', which does not exist.",
            "Correct the link.",
        )
    elif not os.path.exists(place):
        hint = _similar_path(place)
        yield problem(PATH_VARIABLE, f"It names '{place}', which does not exist.", f"Correct or remove it.{hint}")
    elif os.path.isdir(place):
        if not os.access(place, os.R_OK | os.X_OK):
            yield problem(
                PATH_VARIABLE,
                f"It names the directory '{place}', which this user may not list.",
                f"Allow it: chmod a+rx {place}.",
            )
        elif not glob.glob(os.path.join(glob.escape(place), _PATTERN)):
            yield _nothing_in(place)


def _similar_path(place: str) -> str:
    parent = os.path.dirname(os.path.abspath(place))
    if not os.path.isdir(parent):
        return f" Nor does the directory '{parent}'."
    if not os.access(parent, os.R_OK):
        return ""
    similar = difflib.get_close_matches(os.path.basename(place), os.listdir(parent), n=1)
    return f" There is '{os.path.join(parent, similar[0])}'." if similar else ""


def _nothing_in(place: str) -> Finding:
    text = f"It names the directory '{place}', which holds no {_PATTERN.replace('*', '<name>')}."
    others = sorted(os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(place), "*.so*")))
    if others:
        return problem(
            PATH_VARIABLE,
            f"{text} It holds {', '.join(others[:5])}.",
            "Call the library libtorch_backend_<name>.so, or name the file itself.",
        )
    below = glob.glob(os.path.join(glob.escape(place), "*", "**", _PATTERN), recursive=True)
    if below:
        return problem(PATH_VARIABLE, f"{text} Directories below are not searched.", f"Name '{below[0]}'.")
    return problem(PATH_VARIABLE, text, "Build the library into it, or name the directory that has it.")


def _own_entry_point() -> Iterator[Finding]:
    if not metadata.entry_points(group=_TORCH_GROUP, name="torch_backend"):
        yield problem(
            "torch_backend",
            f"It can be imported but is not installed: it has no entry point in the group '{_TORCH_GROUP}', so "
            "`import torch` does not look for devices.",
            "Install it: pip install torch_backend, or make build in a checkout.",
        )


def _groups_nobody_reads() -> Iterator[Finding]:
    """Entry points in a group that is nearly ours."""
    for package in metadata.distributions():
        for entry_point in package.entry_points:
            group = entry_point.group
            if group in (*ENTRY_POINT_GROUPS, _TORCH_GROUP):
                continue
            normal = group.lower().replace("-", "_").replace("torchbackend", "torch_backend")
            if (
                normal.startswith("torch_backend")
                or difflib.SequenceMatcher(a=group, b=ENTRY_POINT_GROUP).ratio() > 0.9
            ):
                yield problem(
                    f"entry point '{entry_point.name}' of {package.name}",
                    f"It is in the group '{group}', which nobody reads.",
                    f"The package has to call the group '{ENTRY_POINT_GROUP}'.",
                )


def _names_found_twice(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    by_name: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.name is not None:
            by_name[candidate.name].append(candidate)
    for name, found in by_name.items():
        sources = " and ".join(candidate.source for candidate in found)
        if len(found) > 1 and all(candidate.origin is Origin.ENTRY_POINT for candidate in found):
            yield problem(
                name,
                f"Several packages offer it: {sources}.",
                f"Uninstall all but one, or name the library to use in {PATH_VARIABLE}.",
            )
        elif len(found) > 1:
            yield note(name, f"It is found more than once: {sources}. The first is used.")
