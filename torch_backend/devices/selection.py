"""Which device a process gets: the one asked for by name, or the only one a vendor has installed."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch_backend.devices.discovery import PATH_VARIABLE, Candidate, Origin, by_place, discover, of_file
from torch_backend.files import location

SELECT_VARIABLE = "TORCH_BACKEND"
NO_DEVICE = "none"

_NONE_ACTIVE = "No device of torch_backend is active."


def find(name: str, candidates: Sequence[Candidate] | None = None) -> Candidate:
    """The device ``name``, from the place that takes precedence; or the Python device that "module:Class" names.

    Raises ValueError, listing what there is, if there is no such device, and if two packages offer it or it is a path.
    """
    if (candidate := by_place(name)) is not None:
        return candidate
    candidates = discover() if candidates is None else candidates
    named = [candidate for candidate in candidates if candidate.name == name]
    if not named:  # a library whose file name does not tell: see what it holds
        named = [c for c in candidates if c.name is None and c.error is None and c.name == name]
    if not named:
        raise ValueError(f"There is no device '{name}'. {_what_there_is(candidates)}")
    if ambiguity := _ambiguity(name, candidates):
        raise ValueError(ambiguity)
    return named[0]


def _ambiguity(name: str, candidates: Sequence[Candidate]) -> str | None:
    named = [candidate for candidate in candidates if candidate.name == name]
    offers = [candidate.source for candidate in named if candidate.origin is Origin.ENTRY_POINT]
    if named[0].origin is not Origin.ENTRY_POINT or len(offers) < 2:
        return None
    return (
        f"Several packages offer the device '{name}': {_join(offers)}. Uninstall all but one, or name the library to "
        f"use in {PATH_VARIABLE}."
    )


def _what_there_is(candidates: Sequence[Candidate]) -> str:
    known = [f"'{c.name}' ({c.source})" for c in candidates if c.name is not None]
    broken = [f"{c.source}: {c.error}" for c in candidates if c.name is None]
    text = f"There are {_join(known)}." if known else "No device library is installed."
    text += f" Install a vendor's package, or add its library to {PATH_VARIABLE}."
    return f"{text} Could not be loaded: {'; '.join(broken)}" if broken else text


def _join(items: Iterable[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True)
class Choice:
    """What ``import torch`` alone should activate.

    Attributes:
        candidate: the device, loaded; None for no device.
        problems: what the user should know, each a readable text.
        notes: what is in order but worth a line in the debug log.
    """

    candidate: Candidate | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose(environ: Mapping[str, str] = os.environ) -> Choice:
    """Apply the rules: ``TORCH_BACKEND`` picks, by name or place; else the only vendor's device that is present."""
    wanted = environ.get(SELECT_VARIABLE)
    if wanted is None:
        return _choose_vendor(discover(environ))
    if wanted in ("", NO_DEVICE):
        return Choice(None, notes=(f"{SELECT_VARIABLE}={wanted} asks for no device",))
    return _choose_named(wanted, discover(environ))


def _choose_named(name: str, candidates: Sequence[Candidate]) -> Choice:
    asked = f"{SELECT_VARIABLE}={name}"
    try:
        candidate = of_file(name) if location.is_path(name) else find(name, candidates)
    except ValueError as error:
        hint = f" To load the file in this folder, write ./{name}." if os.path.isfile(name) else ""
        return Choice(None, (f"{asked}: {error}{hint} {_NONE_ACTIVE}",))
    try:
        count = candidate.load().device_count()
    except (Exception, SystemExit) as error:
        return Choice(None, (f"{asked} ({candidate.source}): {describe(error)} {_NONE_ACTIVE}",))
    if count > 0:
        return Choice(candidate)
    return Choice(
        None,
        (
            f"{asked}: the plugin {candidate.path} finds no devices. {_NONE_ACTIVE} Check that the hardware is present "
            f"and its driver is loaded, or unset {SELECT_VARIABLE}.",
        ),
    )


def _choose_vendor(candidates: Sequence[Candidate]) -> Choice:
    problems: list[str] = []
    notes: list[str] = []
    usable: dict[str, Candidate] = {}
    on_request = {candidate.name for candidate in candidates if candidate.is_on_request}
    # A library that was loaded by path waits for activate(): only what is installed is activated unasked.
    for candidate in candidates:
        if candidate.origin not in (Origin.PATH, Origin.ENTRY_POINT) or candidate.name in {*usable, *on_request}:
            continue
        try:
            count = candidate.load().device_count()
        except (Exception, SystemExit) as error:
            what = f"The device '{candidate.name}'" if candidate.name else "A device"
            problems.append(
                f"{what} ({candidate.source}) cannot be used: {describe(error)} Set {SELECT_VARIABLE}={NO_DEVICE} to "
                "start without it."
            )
            continue
        name = candidate.name
        if name is None or name in on_request:  # known only now that it is loaded
            continue
        if count == 0:
            notes.append(f"'{name}' ({candidate.source}) finds no devices and is not activated")
            continue
        usable.setdefault(name, candidate)
    ambiguities = [text for name in usable if (text := _ambiguity(name, candidates))]
    if ambiguities:
        problems += [f"{text} {_NONE_ACTIVE}" for text in ambiguities]
    elif len(usable) > 1:
        listed = _join(f"'{name}' ({candidate.source})" for name, candidate in usable.items())
        choices = ", ".join(f"{SELECT_VARIABLE}={name}" for name in usable)
        problems.append(
            f"{len(usable)} devices want PyTorch's one slot for out-of-tree devices: {listed}. {_NONE_ACTIVE} Choose "
            f"with {choices}, or {SELECT_VARIABLE}={NO_DEVICE} for none."
        )
    chosen = next(iter(usable.values())) if len(usable) == 1 and not ambiguities else None
    return Choice(chosen, tuple(problems), tuple(notes))


def describe(error: BaseException) -> str:
    """An exception as a sentence; names its type where the text alone would not tell what happened."""
    text = str(error).split("\nException raised from ")[0].strip()  # torch may append a C++ backtrace
    if not isinstance(error, (RuntimeError, ImportError)) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
