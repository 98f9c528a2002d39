"""Checking a device: one run of the kit, from a device's name or library to a :class:`Report`."""

import os
import platform
import shlex
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from torch_conformance import expectations, fingerprint, routes, session
from torch_conformance.expectations import Expectation
from torch_conformance.levels import DEVICE, LEVELS, SUITE, Level
from torch_conformance.report.findings import DeviceDescription, Report
from torch_conformance.results import Outcome, Result
from torch_conformance.routes import Route
from torch_conformance.routes.library import Library
from torch_conformance.selection import files_with_matches, files_with_tests
from torch_conformance.session import Progress, SessionResult, Settings, Suite


def check(
    device: str | Route,
    *,
    levels: Sequence[Level] = LEVELS,
    quick: bool = False,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    named: Collection[str] | None = None,
    done: Sequence[Result] = (),
    imports: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    expected: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    test_timeout: float = 120.0,
    progress: Progress = lambda result, tests: None,
) -> Report:
    """Run the tests of ``levels`` on a device, each in a process that may crash or hang without harm.

    Args:
        device: of a device that torch_backend brings to PyTorch its name, the path of its library, or "module:Class"
            for one written in Python; or an :class:`~torch_conformance.InPyTorch`, any device of PyTorch.
        levels: what to test, after level 0.
        quick: leave out what takes long.
        only: patterns of test ids: part of an id, or with ``*`` and ``?`` all of it. Empty for all tests.
        skip: patterns of tests that are not run: the report has them as skipped, and their levels are not reached.
        named: the ids of the tests to run, of those that ``only`` has; None for all.
        done: results of a run before this that did not come to its end: these tests are not run again.
        imports: if ``device`` is a text, modules to import once it is active, such as those with kernels for it.
        options: if ``device`` is a text, what the device library reads through ``host->option``, by key.
        expected: a file of known failures; by default ``expectations.toml`` beside the library, or the profile.
        workers: number of tests to run at a time; by default one per processor, at most 8.
        test_timeout: seconds that one test may take.
        progress: is told each result, with the ids of all tests of its session.

    Raises:
        NoSuchDevice: if there is no such device.
        ValueError: for options that the device does not read, or whose device is not known; and wrong expectations.
    """
    started = time.monotonic()
    route = Library(device, tuple(imports), options or {}) if isinstance(device, str) else device
    environment = route.environment()
    description = route.describe(environment, test_timeout)
    opening = _first_result(description, time.monotonic() - started)
    known = known_failures(route, description, expected)
    settings = replace(
        make_settings(route, environment, quick, only, workers, test_timeout),
        skip=tuple(skip),
        named=None if named is None else frozenset(named),
    )
    load = _Load()

    def tell(result: Result, tests: Sequence[str]) -> None:
        load.look()
        progress(result, tests)

    results = [result for result in done if result.level in levels]
    problems: list[str] = []
    for name, part in _sessions(levels, description, settings.device):
        found = _run(part, replace(settings, device=name, done=frozenset(result.test for result in results)), tell)
        results += found.results
        problems += found.problems
    if not results and description.error is not None:  # it says better than a session that could not start why
        problems.clear()
    elif (only or named is not None) and not results and not problems:
        which = f" matches {' or '.join(map(repr, only))}" if only else " has one of the names"
        problems.append(f"No test{which}.")
    results.sort(key=lambda result: (result.level.number, result.test))
    partial = bool(only) or bool(skip) or named is not None or quick
    marked, wrong = expectations.apply(known, results, {level.folder for level in levels}, partial=partial)
    return Report(
        device=description,
        results=(opening, *marked),
        levels=(DEVICE, *(level for level in levels if level in description.levels())),
        problems=(*problems, *wrong),
        quick=quick,
        only=tuple(only),
        skip=tuple(skip),
        named=named is not None,
        options=route.options,
        seconds=time.monotonic() - started,
        run={**about_this_run(), "load": str(load)},
        suite=fingerprint.of_suite(),
        imports=route.modules,
        again=shlex.join([*route.command(), *(["--quick"] if quick else []), "--jobs", "1", "--verbose"]),
    )


def _run(levels: Sequence[Level], settings: Settings, tell: Progress) -> SessionResult:
    files = files_with_matches((file for level in levels for file in level.files()), SUITE, settings.only)
    if settings.named is not None:
        files = files_with_tests(files, SUITE, settings.named)
    return session.run(Suite(files, SUITE), settings, tell) if files else SessionResult()


class _Load:
    """How many processes wanted the machine's processors while a run went on: what its times are worth."""

    def __init__(self) -> None:
        self._lowest = self._highest = os.getloadavg()[0]

    def look(self) -> None:
        now = os.getloadavg()[0]
        self._lowest, self._highest = min(self._lowest, now), max(self._highest, now)

    def __str__(self) -> str:
        many = f"{self._lowest:.1f} to {self._highest:.1f} processes"
        return f"{many} wanted the machine's {os.cpu_count() or 1} processors"


def _first_result(description: DeviceDescription, seconds: float) -> Result:
    proves = "The device can be opened, and torch computes with it."
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


def known_failures(
    route: Route, found: DeviceDescription, file: str | os.PathLike[str] | None
) -> tuple[Expectation, ...]:
    """What is expected to fail: as ``file`` says, else the device's makers. Raises as reading the file does."""
    return expectations.read(Path(file), found.name) if file is not None else route.known_failures(found)


def make_settings(
    route: Route,
    environment: Mapping[str, str],
    quick: bool,
    only: Sequence[str],
    workers: int | None,
    test_timeout: float,
) -> Settings:
    """The arguments of a run as its sessions need them."""
    processors = os.cpu_count() or 1
    workers = workers or min(processors, 8)
    # Threads of more processes than there are processors wait for each other.
    threads = str(max(1, processors // workers))
    return Settings(
        device=routes.text_of(route),
        environment={"OMP_NUM_THREADS": threads, **environment},
        quick=quick,
        only=tuple(only),
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
