"""One device: what its processes have reported, as findings."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_backend.abi import ABI_MAJOR, ABI_MINOR
from torch_backend.devices import selection
from torch_backend.devices.discovery import Candidate, Origin
from torch_backend.diagnosis import child, files
from torch_backend.diagnosis.child import Outcome
from torch_backend.diagnosis.finding import Finding, Severity, note, ok, problem
from torch_backend.files import location

# What the dynamic loader says, and what to do about it.
_LOADER_ADVICE = (
    (
        r"([^\s(]+): cannot open shared object file",
        "It needs {0}, which the loader does not find. Install what brings it (the vendor's driver or runtime). If "
        "that is done, name its directory where the library is linked (INSTALL_RPATH in CMakeLists.txt), bring it "
        "along in the wheel ($ORIGIN), or add the directory to LD_LIBRARY_PATH.",
    ),
    (
        r"undefined symbol: (\S+?)[.,]?(?:\s|$)",
        "Nothing that it is linked with has {0}. Link the library that has it (-l...), or define the function.",
    ),
    (
        r"version `(\S+)' not found",
        "It was built on a newer system, with {0}. Build it on the oldest system that it has to run on.",
    ),
    (
        r"failed to map segment",
        "Its file system may not hold programs (noexec). Move it to one that may.",
    ),
    (r"static TLS", "Build it without -ftls-model=initial-exec, or load it before torch."),
)
_CRASHED = (
    "Run it under a debugger. A function whose parameters differ from its slot in device.h looks like this too, or as "
    "wrong data: a cast silences the compiler and nothing detects it at run time, so remove casts from the table."
)
_EXCEPTION = (
    "A C++ exception has left it, and nothing above can catch one: the functions of a device library are C's. Catch "
    "what it calls, and return host->fail(code, text) with what it says; tb_plugin_entry returns NULL after that."
)
_FREED_WRONGLY = (
    "memory_free must free exactly what memory_allocate returned, once: look for memory that is freed twice, for a "
    "pointer that was not allocated, and for writes past the end of an allocation."
)
_BLOCKED = (
    "The function must return: look for a lock that is taken twice, or a wait for hardware that does not answer. If "
    "the driver is only slow, give more time with --timeout."
)


@dataclass(frozen=True)
class Subject:
    """A device to look at.

    Attributes:
        label: how findings call it.
        candidate: where it was found; None for a library that was named by its path.
        path: its library; None while only its package knows.
    """

    label: str
    candidate: Candidate | None
    path: str | None


@dataclass(frozen=True)
class Examined:
    """What was found of a device, and the options that it reads: None if it does not say."""

    findings: list[Finding]
    name: str | None = None
    option_keys: list[str] | None = None


def examine(subject: Subject, environ: Mapping[str, str], step_seconds: float, with_torch: bool) -> Examined:
    """Look at one device. Nothing of it is loaded into this process."""
    label, path = subject.label, subject.path
    if path is None:
        assert subject.candidate is not None
        outcome = _ask_package(subject.candidate, environ, step_seconds)
        path = outcome.facts.get("path")
        if path is None:
            return Examined(list(_entry_point_failures(label, outcome)))
    if unusable := list(files.examine(label, path)):
        return Examined(unusable)
    outcome = child.run("bare", path, environ, step_seconds)
    keys = outcome.facts.get("option_keys")
    findings = [*_failures(label, path, outcome), *_names(subject, path, outcome), *_version(label, outcome)]
    works = outcome.is_done and not any(finding.severity is Severity.PROBLEM for finding in findings)
    if works and outcome.facts["device_count"] == 0:
        findings.append(_no_devices(label))
    elif works and with_torch:
        used = child.run("torch", path, environ, step_seconds)
        findings += _failures(label, path, used)
        works = not used.faults and used.ending is None
    if works and outcome.facts["device_count"]:
        with_what = "tensors work" if with_torch else "memory and copies work"
        count = outcome.facts["device_count"]
        findings.append(ok(label, f"{path}: {count} device{'s' * (count != 1)}, {with_what}."))
    return Examined(findings, outcome.facts.get("name"), keys)


def option_keys(device: str, environ: Mapping[str, str], step_seconds: float) -> list[str] | None:
    """The options that ``device``, a name or a place, reads; None if it does not say, is not there or does not work."""
    path: str | None = device
    if not location.is_place(device):
        try:
            candidate = selection.find(device)
        except ValueError:
            return None
        path = candidate.path or _ask_package(candidate, environ, step_seconds).facts.get("path")
    return None if path is None else child.run("bare", path, environ, step_seconds).facts.get("option_keys")


def _ask_package(candidate: Candidate, environ: Mapping[str, str], step_seconds: float) -> Outcome:
    return child.run("entry_point", candidate.name or "", environ, step_seconds)


def _entry_point_failures(label: str, outcome: Outcome) -> Iterator[Finding]:
    advice = "The package is broken or not complete: reinstall it, or tell its vendor."
    for step, text in outcome.faults:
        yield problem(label, f"{step} failed: {text}", advice)
    if outcome.ending is not None:
        yield problem(label, f"{outcome.step} {outcome.ending}.{_wrote(outcome)}", advice)


def _failures(label: str, path: str, outcome: Outcome) -> Iterator[Finding]:
    for step, text in outcome.faults:
        yield problem(label, _with_step(step, text), _advice(step, text, path))
    if outcome.ending is None:
        return
    if outcome.is_done:
        step, advice = "the end of the process", "At exit a library must neither wait nor use what is gone already."
    else:
        step, advice = outcome.step, _advice_on_ending(outcome, outcome.ending)
    yield problem(label, f"{step}: {outcome.ending}.{_wrote(outcome)}", advice)


def _advice_on_ending(outcome: Outcome, ending: str) -> str:
    if "did not return" in ending:
        return _BLOCKED
    if "exit code" in ending:
        return "A device library must not end the process: return a status, host->fail(code, text)."
    if "terminate called after throwing" in outcome.output:  # libstdc++'s words
        return _EXCEPTION
    return _FREED_WRONGLY if outcome.step == "memory_free" and "SIGABRT" in ending else _CRASHED


def _with_step(step: str, text: str) -> str:
    slot = step.split(" ")[0]
    return text if slot in text else f"{step}: {text}"


def _wrote(outcome: Outcome) -> str:
    return f" It wrote: {outcome.output}" if outcome.output else ""


def _advice(step: str, text: str, path: str) -> str:
    for pattern, advice in _LOADER_ADVICE:
        match = re.search(pattern, text)
        if match:
            return advice.format(*match.groups())
    if re.search(r"permission|not permitted|EACCES|EPERM", text, re.IGNORECASE):
        return (
            f"The driver refuses the user {os.environ.get('USER') or os.getuid()}: look at the owner and mode of its "
            "files in /dev, and at the groups of the user (id)."
        )
    if step == "initialize":
        return (
            "The driver does not start: check that the hardware is present and that its driver and firmware are loaded."
        )
    if step.startswith(("import", "torch_backend.load", "loading")) or "required and not set" in text:
        return ""
    if step == "device_count" and "UNSUPPORTED" in text:
        return "The library has nothing to work with on this machine; the text is its own."
    if step == "tb_plugin_entry":
        return "The text is the library's own, or says what to change in its source."
    return f"Correct {step.split(' ')[0]}; device.h says what it must do, `torch-backend check {path} --level 1` more."


def _names(subject: Subject, path: str, outcome: Outcome) -> Iterator[Finding]:
    name = outcome.facts.get("name")
    if name is None:
        return
    candidate = subject.candidate
    if candidate is not None and candidate.origin is Origin.ENTRY_POINT and candidate.name != name:
        yield problem(
            subject.label,
            f"It gives the device '{name}' ({path}).",
            "The name of the entry point must be the device's: the package has to correct one of them.",
        )
    in_file = None if location.is_reference(path) else location.name_in(path)
    if in_file is not None and in_file != name:
        yield problem(
            subject.label,
            f"The file is called {os.path.basename(path)} and holds the device '{name}'.",
            f"Call it libtorch_backend_{name}.so: options and TORCH_BACKEND go by the name.",
        )


def _version(label: str, outcome: Outcome) -> Iterator[Finding]:
    version = outcome.facts.get("abi")
    ours = f"{ABI_MAJOR}.{ABI_MINOR}"
    if version is not None and version != ours:
        yield note(
            label, f"It was built for device ABI {version}; this torch_backend speaks {ours}. Both work together."
        )


def _no_devices(label: str) -> Finding:
    return problem(
        label,
        "The library works and device_count finds 0 devices, so nothing is activated.",
        "Check that the hardware is present, that its driver is loaded and that this user may open it; in a container, "
        "that the device is passed on.",
    )
