"""Checking a device: one run of the kit, from a device's name or library to a :class:`Report`."""

import difflib
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from torch_backend.files import location
from torch_conformance import expectations, session
from torch_conformance.levels import DEVICE, LEVELS, SUITE, Level
from torch_conformance.report.findings import DeviceDescription, Report
from torch_conformance.results import Outcome, Result
from torch_conformance.selection import files_with_matches
from torch_conformance.session import Progress, Settings, Suite


class NoSuchDevice(ValueError):
    """The argument names no device."""


def check(
    device: str,
    *,
    levels: Sequence[Level] = LEVELS,
    quick: bool = False,
    only: Sequence[str] = (),
    imports: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    expected: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    test_timeout: float = 120.0,
    progress: Progress = lambda result, tests: None,
) -> Report:
    """Run the tests of ``levels`` on a device, each in a process that may crash or hang without harm.

    Args:
        device: a name, the path of a device library, or "module:Class" for one written in Python.
        levels: what to test, after level 0.
        quick: leave out what takes long.
        only: patterns of test ids: part of an id, or with ``*`` and ``?`` all of it. Empty for all tests.
        imports: modules to import once the device is active, such as those that register kernels for it.
        options: what the device library reads through ``host->option``, by key.
        expected: a file of known failures; by default ``expectations.toml`` beside the library.
        workers: number of tests to run at a time; by default one per processor, at most 8.
        test_timeout: seconds that one test may take.
        progress: is told each result, with the ids of all tests of its session.

    Raises:
        NoSuchDevice: if there is no such device.
        ValueError: for options that the device does not read, or whose device is not known; and wrong expectations.
    """
    started = time.monotonic()
    options = options or {}
    environment = environment_for(device, options)
    description = describe(device, environment, test_timeout)
    opening = _doctors_result(description, time.monotonic() - started)
    known = expectations.of_device(description, expected)
    settings = make_settings(device, environment, quick, only, imports, workers, test_timeout)
    results: list[Result] = []
    problems: list[str] = []
    for name, part in _sessions(levels, description, settings.device):
        files = files_with_matches((file for level in part for file in level.files()), SUITE, only)
        if not files:
            continue
        found = session.run(Suite(files, SUITE), replace(settings, device=name), progress)
        results += found.results
        problems += found.problems
    if not results and description.error is not None:  # it says better than a session that could not start why
        problems.clear()
    elif only and not results and not problems:
        problems.append(f"No test matches {' or '.join(map(repr, only))}.")
    results.sort(key=lambda result: (result.level.number, result.test))
    marked, wrong = expectations.apply(known, results, {level.folder for level in levels}, partial=bool(only) or quick)
    return Report(
        device=description,
        results=(opening, *marked),
        levels=(DEVICE, *levels),
        problems=(*problems, *wrong),
        quick=quick,
        only=tuple(only),
        options=options,
        seconds=time.monotonic() - started,
        run=about_this_run(),
    )


def _doctors_result(description: DeviceDescription, seconds: float) -> Result:
    proves = "The device library opens, and torch computes with its first device."
    outcome: Outcome = "passed" if description.error is None else "failed"
    return Result("device/doctor::steps", outcome, proves, seconds, message=description.error or "")


def about_this_run() -> dict[str, str]:
    """What a report says of the run itself."""
    system = f"{platform.system()} {platform.release()}"
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "host": f"{platform.node()}, {platform.machine()}, {os.cpu_count()} processors, {system}",
        "python": platform.python_version(),
        "command": f"{name} {shlex.join(sys.argv[1:])}",
    }


def make_settings(
    device: str,
    environment: Mapping[str, str],
    quick: bool,
    only: Sequence[str],
    imports: Sequence[str],
    workers: int | None,
    test_timeout: float,
) -> Settings:
    """The arguments of a run as its sessions need them."""
    processors = os.cpu_count() or 1
    workers = workers or min(processors, 8)
    # Threads of more processes than there are processors wait for each other.
    threads = str(max(1, processors // workers))
    return Settings(
        device=location.absolute(device),
        environment={"OMP_NUM_THREADS": threads, **environment},
        quick=quick,
        only=tuple(only),
        imports=tuple(imports),
        workers=workers,
        test_timeout=test_timeout,
    )


def _sessions(levels: Sequence[Level], description: DeviceDescription, device: str) -> list[tuple[str, list[Level]]]:
    """What each pytest session calls the device, and its levels.

    The bare library comes first, in processes of its own; then all levels that need torch.
    """
    bare = [level for level in levels if not level.needs_torch]
    rest = [level for level in levels if level.needs_torch]
    sessions = []
    if bare and description.path is not None:
        sessions.append((description.path, bare))
    if rest and description.error is None:
        sessions.append((device, rest))
    return sessions


def environment_for(device: str, options: Mapping[str, str]) -> dict[str, str]:
    """What the processes of a run get: this process's environment, and options for the device library.

    Raises ValueError for options of a device whose name is not known, and for those that it does not read.
    """
    environment = dict(os.environ)
    if options:
        name = location.name_in(device) if location.is_place(device) else device
        if name is None:
            raise ValueError(
                f"Options cannot be given to '{device}', whose device is not known before it is loaded. Call the file "
                "libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the environment."
            )
        environment.update({f"TORCH_BACKEND_{name}_{key}".upper(): value for key, value in options.items()})
        _refuse_unknown(options, device, environment)
    return environment


def _refuse_unknown(options: Mapping[str, str], device: str, environment: Mapping[str, str]) -> None:
    from torch_backend.diagnosis import STEP_SECONDS, option_keys

    known = option_keys(device, environment, STEP_SECONDS)
    if known is None:
        return
    spelled = {key.upper(): key for key in known}
    for key in options:
        if key.upper() not in spelled:
            similar = difflib.get_close_matches(key.upper(), spelled, n=1)
            hint = f" Did you mean {spelled[similar[0]]}?" if similar else ""
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise ValueError(f"The device '{device}' has no option '{key}'.{hint} {has}")


def describe(device: str, environment: Mapping[str, str], step_seconds: float) -> DeviceDescription:
    """What a device is, asked in another process, which it may crash. Its ``error`` says what went wrong.

    Raises NoSuchDevice if there is none.
    """
    # Processes that only import the kit, by the dozen, do without it.
    from torch_backend.diagnosis import STEP_SECONDS, Severity, child, diagnose

    path = location.absolute(device) if location.is_place(device) else None
    if path is not None and not location.exists(path):
        raise NoSuchDevice(f"There is no device library {device}.")
    opened = child.run("torch", device, environment, step_seconds)
    if "no_such_device" in opened.facts:
        raise NoSuchDevice(opened.facts["no_such_device"])
    if "device" in opened.facts and opened.ending is None:
        return DeviceDescription.of(opened.facts["device"])
    # The process that failed has named the step; the doctor takes smaller ones, and knows what to do.
    found = diagnose(device, environment, min(step_seconds, STEP_SECONDS))
    problems = [str(finding) for finding in found if finding.severity is Severity.PROBLEM]
    why = "\n".join(problems) or f"{opened.step}: {opened.ending or opened.faults}. It wrote: {opened.output}"
    error = f"{device} cannot be used by torch. What `torch-backend doctor` finds:\n{why}"
    return DeviceDescription(device, path=path or opened.facts.get("path"), error=error)
