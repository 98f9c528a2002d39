"""One pytest session over some test files: tests run in worker processes, and a crash or hang ends one test only."""

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch_conformance import modules, patience
from torch_conformance.levels import SUITE
from torch_conformance.results import Outcome, Result

_WITHOUT_END = 1_000_000  # the controller counts those that crash

Progress = Callable[[Result, Sequence[str]], None]
"""Is told the result of each test, and the ids of all tests of its session."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all sessions of a run.

    Attributes:
        device: a name, the path of a device library, or a route to any device as JSON.
        environment: of the processes that run tests.
        quick: leave out what takes long.
        only: patterns of test ids; empty for all.
        skip: patterns of tests that are not run, and told as skipped.
        named: the ids of the tests to run; None for all that the patterns mean.
        done: the ids of tests that were run before.
        workers: number of processes that run tests at a time.
        test_timeout: seconds that one test may take.
    """

    device: str
    environment: Mapping[str, str]
    quick: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    named: frozenset[str] | None = None
    done: frozenset[str] = frozenset()
    workers: int = 1
    test_timeout: float = 120.0


@dataclass(frozen=True)
class Suite:
    """Where the tests of a session are.

    Attributes:
        paths: files and folders.
        root: the folder that ids of tests are relative to, and where workers run.
        upstream: whether they are PyTorch's own, which keep other rules than the kit's.
    """

    paths: Sequence[Path]
    root: Path
    upstream: bool = False


@dataclass
class SessionResult:
    """What a session found: a result for each test it had, and what is wrong with the session itself."""

    results: list[Result] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(suite: Suite, settings: Settings, progress: Progress) -> SessionResult:
    """Run tests and return what came of them. Blocks; Ctrl-C ends the workers too."""
    with tempfile.TemporaryDirectory(prefix="torch-backend-check-") as directory:
        run_dir = Path(directory)
        read_end, write_end = os.pipe()
        log_path = run_dir / "pytest.log"
        with log_path.open("w", encoding="utf-8") as log, os.fdopen(read_end, encoding="utf-8") as events:
            process = subprocess.Popen(
                _command(suite, settings, run_dir, write_end),
                cwd=suite.root if suite.upstream else None,
                env={**settings.environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end,),
            )
            os.close(write_end)
            collector = _Collector(progress, broken_files_are_results=suite.upstream)
            try:
                for line in events:
                    collector.take(json.loads(line))
                process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise
        return collector.result(process.returncode, log_path.read_text(encoding="utf-8", errors="replace"))


def _command(suite: Suite, settings: Settings, run_dir: Path, events: int) -> list[str]:
    tests = run_dir / "tests.json"
    ids = {"named": None if settings.named is None else sorted(settings.named), "done": sorted(settings.done)}
    tests.write_text(json.dumps(ids), encoding="utf-8")
    options = {
        "-c": SUITE / "pytest.ini",  # never that of a project around the tests
        "--rootdir": suite.root,
        "--device": settings.device,
        "--run-dir": run_dir,
        "--events": events,
        "--numprocesses": settings.workers,
        "--max-worker-restart": _WITHOUT_END,
        "--tests": tests,
        "--test-timeout": settings.test_timeout,
    }
    plugins = ("xdist.plugin", "torch_conformance.pytest_plugin", "torch_conformance.pytest_controller")
    return [
        *modules.command("pytest", "--quiet"),
        *(part for plugin in plugins for part in ("-p", plugin)),
        *(str(part) for option in options.items() for part in option),
        *(["--quick"] if settings.quick else []),
        *(["--upstream", "--noconftest", f"--override-ini=pythonpath={_import_path(suite)}"] if suite.upstream else []),
        *([] if suite.upstream else ["--strict-markers"]),
        *(f"--only={pattern}" for pattern in settings.only),
        *(f"--skip={pattern}" for pattern in settings.skip),
        *map(str, suite.paths),
    ]


def _import_path(suite: Suite) -> str:
    """Where PyTorch's test files find what they import: in their root, and beside them as PyTorch runs them."""
    folders = [suite.root, *sorted({path.parent for path in suite.paths} - {suite.root})]
    return shlex.join(map(str, folders))


class _Collector:
    """Puts results together from what the session tells."""

    def __init__(self, progress: Progress, broken_files_are_results: bool) -> None:
        self.progress = progress
        self.broken_files_are_results = broken_files_are_results
        self.tests: list[str] | None = None
        self.proves: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.phases: dict[str, list[dict[str, Any]]] = {}
        self.results: dict[str, Result] = {}
        self.problems: list[str] = []

    def take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "collected":
                self.tests, self.proves, self.skipped = event["tests"], event["proves"], event["skipped"]
            case "phase":
                phases = self.phases.setdefault(event["test"], [])
                phases.append(event)
                if event["phase"] == "teardown":
                    self._add(_joined(event["test"], phases, self.proves.get(event["test"], "")))
            case "crash":
                test = event["test"]
                self._add(
                    Result(
                        test,
                        event["outcome"],
                        proves=self.proves.get(test, ""),
                        message=event["message"],
                        details=event["details"],
                        facts=event["facts"],
                    )
                )
            case "lost":
                before = self.results[event["test"]]
                message = f"{before.message}; the process cannot use the device any more: {event['message']}"
                self.results[before.test] = replace(before, message=message)
            case "no start":
                self.problems.append(f"The device could not be opened: {event['message']}\n{event['details']}")
            case "broken file" if self.broken_files_are_results:
                self._add(_of_broken_file(event["file"], event["details"]))
            case "broken file":
                self.problems.append(f"{event['file']} could not be loaded:\n{event['details']}")
            case "internal error":
                self.problems.append(f"A process that runs tests could not start:\n{event['details']}")

    def _add(self, result: Result) -> None:
        self.results[result.test] = result
        self.progress(result, self.tests or ())

    def result(self, code: int, log: str) -> SessionResult:
        """What came of it, once the session has ended with this exit code."""
        found = SessionResult(list(self.results.values()), self.problems)
        if self.tests is None:
            if not found.problems:
                found.problems.append(f"No tests were run (pytest ended with code {code}):\n{_tail(log)}")
            return found
        found.results += [
            Result(test, "skipped", proves=self.proves.get(test, ""), message=f"left out by --skip {pattern}")
            for test, pattern in self.skipped.items()
        ]
        missing = [test for test in self.tests if test not in self.results]
        crashes = sum(result.outcome in ("crashed", "hung") for result in self.results.values())
        if missing:
            why = f"{crashes} tests crashed or hung" if crashes else f"pytest ended with code {code}:\n{_tail(log)}"
            ended = f"The run ended before {len(missing)} of {len(self.tests)} tests"
            found.problems.append(f"{ended}, while {patience.how_busy()}: {why}")
            found.results += [
                Result(test, "not run", proves=self.proves.get(test, ""), message=f"{ended}: {why.splitlines()[0]}")
                for test in missing
            ]
        return found


def _joined(test: str, phases: Sequence[Mapping[str, Any]], proves: str) -> Result:
    """One result from setup, call and teardown: the first that did not pass decides."""
    decisive = next((phase for phase in phases if phase["outcome"] != "passed"), phases[-1])
    facts = {key: value for phase in phases for key, value in phase["facts"].items()}
    reason = facts.pop("not_offered", None)
    outcome: Outcome = "passed"
    if decisive["outcome"] == "failed":
        outcome = "failed"
    elif decisive["outcome"] == "skipped":
        outcome = "not offered"
    return Result(
        test,
        outcome,
        proves=proves,
        seconds=round(sum(phase["seconds"] for phase in phases), 4),
        message=str(reason) if outcome == "not offered" else str(decisive["message"]),
        details=str(decisive["details"]),
        facts=facts,
    )


def _of_broken_file(file: str, details: str) -> Result:
    """The result of a file of which no test is known: its id is the file's."""
    errors = re.findall(r"^E\s+(\w*(?:Error|Exception)\b.*)", details, re.MULTILINE)
    return Result(
        file, "failed", message=f"could not be loaded: {errors[0] if errors else _tail(details, 1)}", details=details
    )


def _tail(log: str, lines: int = 20) -> str:
    return "\n".join(log.strip().splitlines()[-lines:])
