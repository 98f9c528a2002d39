"""The whole diagnosis, in the order in which a device comes to be: installation, settings, places, device, torch."""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch_backend.devices.discovery import ENTRY_POINT_GROUP, PATH_VARIABLE, Candidate, Origin, discover
from torch_backend.devices.selection import SELECT_VARIABLE
from torch_backend.diagnosis import child, devices, installation, places, settings
from torch_backend.diagnosis.devices import Examined, Subject
from torch_backend.diagnosis.finding import Finding, Severity, note, ok, problem
from torch_backend.files import location

STEP_SECONDS = 20.0


def diagnose(
    device: str | None = None, environ: Mapping[str, str] = os.environ, step_seconds: float = STEP_SECONDS
) -> Iterator[Finding]:
    """Find out why a device does not appear or does not work.

    Args:
        device: a name, or the path of a library; by default every device that can be found, and what `import torch`
            activates.
        environ: the environment of the processes that try the devices.
        step_seconds: how long one call of a device library may take.

    Yields findings as they are found.
    """
    candidates = [candidate for candidate in discover(environ) if candidate.origin is not Origin.LOADED]
    names = sorted({candidate.name for candidate in candidates if candidate.name is not None})
    has_problems = False
    for finding in (*installation.examine(), *places.examine(candidates, environ)):
        has_problems |= finding.severity is Severity.PROBLEM
        yield finding
    keys: dict[str, Sequence[str] | None] = {}
    is_found = device is None or _is_path(device)
    for subject in _subjects(device, candidates):
        examined = devices.examine(
            subject, environ, step_seconds, with_torch=_is_vendors(subject) or device is not None
        )
        is_meant = subject.candidate is None or device in (None, subject.candidate.name, examined.name)
        is_found |= is_meant
        if not is_meant and examined.name is not None:  # another device, in a file whose name did not tell
            continue
        findings = examined.findings
        if device is None and _may_be_unusable(subject):
            findings = [
                f if f.severity is Severity.OK else replace(f, severity=Severity.NOTE, todo="") for f in findings
            ]
        has_problems |= any(finding.severity is Severity.PROBLEM for finding in findings)
        yield from findings
        _note_keys(keys, examined)
    if device is not None and not is_found:
        yield _not_found(device, names)
    all_names = sorted({*names, *keys})
    if device is None or not _is_path(device):
        is_on_request = any(c.is_on_request and c.name == device for c in candidates)
        yield from settings.examine_selection(device, all_names, environ, is_on_request)
    yield from settings.examine_options(keys, all_names, environ)
    if device is None:
        yield from _autoload(environ, step_seconds, has_problems)


def _is_path(device: str) -> bool:
    return location.is_place(device) or os.path.isfile(device)


def _subjects(device: str | None, candidates: Sequence[Candidate]) -> list[Subject]:
    if device is not None and _is_path(device):
        return [Subject(device, None, device if location.is_reference(device) else os.path.abspath(device))]
    there = [candidate for candidate in candidates if candidate.path is None or location.exists(candidate.path)]
    if device is None:
        chosen = there
    else:
        # A library whose file name does not tell may hold it.
        chosen = [c for c in there if c.name == device][:1] or [c for c in there if c.name is None]
    return [Subject(_label(candidate), candidate, candidate.path) for candidate in chosen]


def _label(candidate: Candidate) -> str:
    return f"{candidate.name} ({candidate.source})" if candidate.name is not None else candidate.source


def _is_vendors(subject: Subject) -> bool:
    return subject.candidate is None or not subject.candidate.is_on_request


def _may_be_unusable(subject: Subject) -> bool:
    """Whether what it lacks, such as a driver, concerns only who asks for it."""
    candidate = subject.candidate
    return candidate is not None and candidate.is_on_request and candidate.origin is not Origin.REFERENCE


def _note_keys(keys: dict[str, Sequence[str] | None], examined: Examined) -> None:
    if examined.name is not None:
        keys.setdefault(examined.name, examined.option_keys)


def _not_found(device: str, names: Sequence[str]) -> Finding:
    similar = difflib.get_close_matches(device, names, n=1)
    hint = f"Did you mean {similar[0]}? Else install" if similar else "Install"
    return problem(
        device,
        f"There is no such device: {PATH_VARIABLE} has no libtorch_backend_{device}.so, and no package for this Python "
        f"has an entry point '{device}' in the group '{ENTRY_POINT_GROUP}'. There are {', '.join(names) or 'none'}.",
        f"{hint} its package with the pip of this Python, or add the directory of its library to {PATH_VARIABLE}.",
    )


def _autoload(environ: Mapping[str, str], step_seconds: float, has_problems: bool) -> Iterator[Finding]:
    outcome = child.run("autoload", "", environ, step_seconds)
    if outcome.ending is not None and not has_problems:
        yield problem(
            "import torch",
            f"{outcome.step}: {outcome.ending}. It wrote: {outcome.output or 'nothing'}",
            f"Try `python -c 'import torch'` with {settings.AUTOLOAD_VARIABLE}=0.",
        )
    if not has_problems:  # else it says again what was said of the device
        for step, text in outcome.faults:
            yield problem("import torch", text if step == "import torch" else f"{step}: {text}")
    active = outcome.facts.get("active")
    if active is not None:
        yield ok("import torch", f"It activates '{active}'.")
    elif outcome.is_done and not outcome.faults:
        todo = f"Install a vendor's package, or choose a device with {SELECT_VARIABLE}=<name>."
        yield note("import torch", "It activates no device.", todo)
