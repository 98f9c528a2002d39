"""PyTorch's own device-generic tests, from a checkout the user has, unmodified, on a device.

Which files they are is not a list: every file below ``test/`` that calls ``instantiate_device_type_tests`` makes tests
for the active device. Tests of these files that are about no device are left out, and tests that fail are tried on
the CPU: one that fails there too is no failure of the device.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_conformance import expectations, session, upstream_copies
from torch_conformance.causes import cause
from torch_conformance.conformance import about_this_run, known_failures, make_settings
from torch_conformance.report.findings import DeviceDescription, Findings
from torch_conformance.results import FAILURES, Result, count
from torch_conformance.routes import Route
from torch_conformance.routes.library import Library
from torch_conformance.selection import files_with_matches
from torch_conformance.session import Progress, SessionResult, Settings, Suite
from torch_conformance.upstream_rules import CONTROL, file_of, general_name, is_file, name_on_the_cpu

_MAX_NAMED = 1000
"""So many failed tests of a file are tried on the CPU at a time: they are named on a command line."""

_IN_ANOTHER_WAY = "fails on the CPU in another way"

_MARK = "instantiate_device_type_tests("


@dataclass(frozen=True, kw_only=True)
class UpstreamReport(Findings):
    """What PyTorch's own tests found. Their ids start with "upstream/".

    Attributes:
        checkout: the folder with PyTorch's sources.
        notes: what may explain failures, such as a checkout of another version.
    """

    checkout: Path
    notes: tuple[str, ...] = ()

    def verdict_text(self) -> str:
        """What the run comes to, in a sentence."""
        return "What passes on the CPU passes on the device." if self.ok else "Not all that passes on the CPU passes."

    def groups(self) -> dict[str, list[Result]]:
        """Results by file, relative to the checkout's ``test`` folder."""
        found: dict[str, list[Result]] = {}
        for result in self.results:
            found.setdefault(result.test.split("/", 1)[1].split("::")[0], []).append(result)
        return found

    def to_json(self) -> dict[str, Any]:
        """The report as JSON's types."""
        return super().to_json() | {
            "checkout": str(self.checkout),
            "files": {file: dict(count(results)) for file, results in self.groups().items()},
            "not_offered": dict(self.not_offered()),
            "notes": list(self.notes),
        }


def check_upstream(
    device: str | Route,
    checkout: str | os.PathLike[str],
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    imports: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    expected: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    test_timeout: float = 120.0,
    progress: Progress = lambda result, tests: None,
) -> UpstreamReport:
    """Run the device-generic tests of a PyTorch checkout on a device.

    Args:
        checkout: the folder with PyTorch's sources; only its ``test`` folder is used, with the installed torch.
        quick: of the tests that PyTorch makes of one function, for operators and dtypes, run 4.
        only: patterns of files or test ids; files that no pattern can mean are not loaded. Empty for all.
        skip: patterns of test ids that are not run: the report has them as skipped.

    The other arguments are those of :func:`~torch_conformance.check`.

    Raises:
        NoSuchDevice: if there is no such device.
        ValueError: if the checkout has no device-generic tests, and for what is wrong with options or expectations.
    """
    started = time.monotonic()
    tests = _Tests.of(Path(checkout).resolve() / "test", only)
    route = Library(device, tuple(imports), options or {}) if isinstance(device, str) else device
    environment = route.environment()
    description = route.describe(environment, test_timeout)
    known = known_failures(route, description, expected)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    results: list[Result] = []
    if description.error is None:
        settings = replace(make_settings(route, environment, quick, only, workers, test_timeout), skip=tuple(skip))
        found = tests.run_on(description.name, settings, progress)
        judged = _without_what_fails_on_the_cpu(found.results, description.name, tests, settings)
        problems = tuple(found.problems)
        notes = (
            *_unloadable(judged.results),
            *_in_another_way(judged.results),
            *(f"On the CPU: {problem}" for problem in judged.problems),
        )
        if not problems and all(is_file(result.test) for result in judged.results):
            which = f" that matches {' or '.join(map(repr, only))}" if only else ""
            problems = (f"No test{which} was found in what could be loaded below {tests.root}.",)
        named = [replace(result, test=f"{expectations.UPSTREAM}/{result.test}") for result in judged.results]
        results = sorted(named, key=lambda result: result.test)
    else:
        problems = (description.error,)
    marked, wrong = expectations.apply(
        known, results, {expectations.UPSTREAM}, partial=bool(only) or bool(skip) or quick
    )
    return UpstreamReport(
        device=description,
        checkout=Path(checkout),
        results=marked,
        problems=(*problems, *wrong),
        notes=(*_version_note(tests.root.parent, description), *notes),
        seconds=time.monotonic() - started,
        run=about_this_run(),
        quick=quick,
        only=tuple(only),
        skip=tuple(skip),
        options=route.options,
    )


@dataclass(frozen=True)
class _Tests:
    """Files with device-generic tests, and the folder of a checkout that they are in."""

    root: Path
    files: Sequence[Path]

    @classmethod
    def of(cls, root: Path, only: Sequence[str]) -> "_Tests":
        return cls(root, device_generic_files(root, only))

    def run_on(
        self,
        name: str,
        settings: Settings,
        progress: Progress,
        only: Mapping[Path, Sequence[str]] | None = None,
    ) -> SessionResult:
        """Run them on the device with this name.

        Each file has processes of its own, as PyTorch runs it: many change defaults of the process that loads them.
        ``only`` has files and the patterns of their tests, if not those of the settings.
        """
        found = SessionResult()
        with upstream_copies.readable_as(self.root, self.files, name) as root:
            # For processes that tests start.
            folders = filter(None, (str(root), settings.environment.get("PYTHONPATH")))
            environment = {
                **settings.environment,
                "PYTHONPATH": os.pathsep.join(folders),
                "PYTORCH_TESTING_DEVICE_ONLY_FOR": f"{name},privateuse1",
            }
            of_all = replace(settings, environment=environment)
            for file in self.files if only is None else only:
                path = file.relative_to(self.root)
                for patterns in [settings.only] if only is None else _in_parts(only[file]):
                    suite = Suite([root / path], root, upstream=True)
                    of_file = session.run(suite, replace(of_all, only=tuple(patterns)), progress)
                    found.results += of_file.results
                    found.problems += [f"{path.as_posix()}: {problem}" for problem in of_file.problems]
        return found


def _in_parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _MAX_NAMED] for start in range(0, len(names), _MAX_NAMED)]


def _without_what_fails_on_the_cpu(
    results: Sequence[Result], device: str, tests: _Tests, settings: Settings
) -> SessionResult:
    """The results, with failures known that the same test has on the CPU: they say nothing about the device."""
    failed: dict[Path, list[str]] = {}
    for result in results:
        if result.outcome in FAILURES:
            failed.setdefault(tests.root / file_of(result.test), []).append(name_on_the_cpu(result.test, device))
    if not failed or device == CONTROL:
        return SessionResult(list(results))
    # Without any device: what its registration changes for the CPU's tensors is its doing.
    environment = {**settings.environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    control = replace(settings, device=CONTROL, environment=environment, quick=False)
    found = tests.run_on(CONTROL, control, _tell_nobody, failed)
    on_cpu = {general_name(result.test, CONTROL): result for result in found.results if result.outcome in FAILURES}
    judged = [
        _known(result, twin, device)
        if result.outcome in FAILURES and (twin := on_cpu.get(general_name(result.test, device))) is not None
        else result
        for result in results
    ]
    return SessionResult(judged, found.problems)


def _known(result: Result, twin: Result, device: str) -> Result:
    """A failure that is no failure of the device, as ``twin`` says: the same test on the CPU."""
    as_there = replace(result, message=result.message.replace(device, CONTROL))
    how = "fails on the CPU too" if cause(as_there) == cause(twin) else f"{result.message}; {_IN_ANOTHER_WAY}"
    return replace(result, outcome="known", message=f"{how}: {twin.message}")


def _in_another_way(results: Sequence[Result]) -> tuple[str, ...]:
    """What is to be told of tests that cannot pass on the CPU: they may fail for a reason of the device's own."""
    tests = [
        result.test for result in results if result.outcome == "known" and f"; {_IN_ANOTHER_WAY}: " in result.message
    ]
    if not tests:
        return ()
    return (f"Known, but look at them, for the CPU fails in another way: {', '.join(tests)}",)


def _unloadable(results: Sequence[Result]) -> tuple[str, ...]:
    """What is to be told of files that could not be loaded on the CPU either: their tests are nobody's failures."""
    return tuple(
        f"{result.test}: {result.message}" for result in results if is_file(result.test) and result.outcome == "known"
    )


def _tell_nobody(result: Result, tests: Sequence[str]) -> None:
    """The progress is that of the tests on the device."""


def device_generic_files(root: Path, only: Sequence[str] = ()) -> list[Path]:
    """The files below a checkout's ``test`` folder that make tests for the active device.

    ``only`` leaves out files that none of the patterns can mean.

    Raises ValueError if there are none.
    """
    if not root.is_dir():
        raise ValueError(f"{root.parent} has no folder 'test': give the folder that holds PyTorch's sources.")
    files = [path for path in sorted(root.rglob("test_*.py")) if path.is_file()]  # links may lead nowhere
    everything = [path for path in files if _MARK in path.read_text(errors="replace")]
    if not everything:
        raise ValueError(f"No file below {root} calls instantiate_device_type_tests.")
    chosen = files_with_matches(everything, root, only)
    if not chosen:
        raise ValueError(f"No device-generic test file below {root} matches {' or '.join(map(repr, only))}.")
    return chosen


def _version_note(checkout: Path, device: DeviceDescription) -> tuple[str, ...]:
    file = checkout / "version.txt"
    version = file.read_text(encoding="utf-8").strip() if file.is_file() else None
    if version is None or not device.torch:
        return ()
    theirs, ours = (text.split(".")[:2] for text in (version, device.torch))
    if theirs == ours:
        return ()
    return (f"The checkout is torch {version} and torch {device.torch} is installed: failures may come from that.",)
