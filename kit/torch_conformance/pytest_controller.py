"""The kit's side in the pytest process that hands tests out to workers: tells :mod:`torch_conformance.session`."""

import json
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torch_conformance import levels, modules, patience
from torch_conformance.processes import ForkServer

_FORKS = sys.platform == "linux"
"""Elsewhere libraries that torch loads cannot be used in a copy of the process that has loaded them."""

_BARE = "import pytest, xdist.remote"
_TORCH = f"{_BARE}, torch"
_OPERATORS = f"""{_TORCH}, hypothesis, torch._dynamo.device_interface
try: import scipy.signal
except ImportError: pass
"""
"""What workers would import, each for itself; of what PyTorch's list of operators imports, that which does not ask
which devices there are."""

MAX_CRASHES = 40
"""So many tests may take their worker along before a session ends, if they are one in four of those that ran: a device
that crashes wherever it is used has shown that."""

_HUNG = "Timeout ("  # how faulthandler begins when the time is up
_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where to tell what happens."""
    parser.getgroup("torch_backend").addoption(
        "--events", type=int, help="descriptor to write a JSON line per event to"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell what happens, in the process that hands out tests."""
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Controller(config), "torch_backend controller")


class Controller:
    """Writes one JSON object per line for everything that happens to a test."""

    def __init__(self, config: pytest.Config) -> None:  # noqa: D107  # the class says it
        self.run_dir: Path = config.getoption("--run-dir")
        self.events = os.fdopen(config.getoption("--events"), "w", encoding="utf-8")
        self.started: set[str] = set()  # the workers that have loaded the tests
        self.server: ForkServer | None = None
        self.crashes = 0
        self.ran = 0

    def _tell(self, kind: str, **what: Any) -> None:
        self.events.write(json.dumps({"event": kind, **what}, default=str) + "\n")
        self.events.flush()

    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: list[Any]) -> None:
        """Let workers start as copies of one process that has imported torch, those too that replace others.

        They do not import files of the working folder while they start, where Python can do without it.
        """
        if _FORKS:
            self.server = ForkServer(os.environ, _preparation(config))
            os.environ[modules.SERVER] = self.server.place  # for what tests start, too
        command = modules.interpreter()
        if sys.version_info >= (3, 11):
            command.append("-P")
        for spec in specs:
            spec.python = shlex.join(command)

    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Tell which tests there are, once."""
        self.started.add(node.gateway.id)
        if len(self.started) > 1:
            return
        everything = json.loads((self.run_dir / f"collected-{node.gateway.id}.json").read_text(encoding="utf-8"))
        self._tell("collected", tests=list(ids), proves=everything["proves"], skipped=everything["skipped"])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a file whose tests could not be found out."""
        if report.failed:
            self._tell("broken file", file=report.nodeid, details=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell how a part of a test ended."""
        if report.when not in ("setup", "call", "teardown"):
            return  # of a crash, which pytest_handlecrashitem tells
        self.ran += report.when == "teardown"
        facts = {str(name): value for name, value in report.user_properties}
        self._tell(
            "phase",
            test=report.nodeid,
            phase=report.when,
            outcome=report.outcome,
            seconds=report.duration,
            facts=facts,
            message=_message(report),
            details=report.longreprtext if report.failed else "",
        )

    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Tell of a test that took its worker along, with what the worker left behind."""
        report.when = "crash"
        noted, death = self._left_behind(report.node)
        if lost := [entry["lost"] for entry in noted if "lost" in entry]:
            self._tell("lost", test=crashitem, message=lost[0])
            return
        self.crashes += 1
        self._tell(
            "crash",
            test=crashitem,
            outcome=death.outcome,
            facts={key: value for entry in noted for key, value in entry.items() if key != "test"},
            message=death.message,
            details=death.details,
        )

        if self.crashes > MAX_CRASHES and 4 * self.crashes > self.ran:
            pytest.exit("too many workers died")

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """End the session if a worker died before it ran a test: the next one would die too."""
        if error is None or node.gateway.id in self.started:
            return
        noted, death = self._left_behind(node)
        said = [entry["no_start"] for entry in noted if "no_start" in entry]
        self._tell("no start", message=said[0] if said else death.message, details=death.details)
        pytest.exit("a worker died while it opened the device")

    def _left_behind(self, node: Any) -> "tuple[list[dict[str, Any]], _Death]":
        """What a dead worker noted about its test, and how it died."""
        log = self.run_dir / f"{node.gateway.id}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        noted, rest = _split(lines)
        return noted, _Death.of(rest)

    def pytest_internalerror(self, excrepr: Any) -> None:
        """Tell of a worker that could not start."""
        self._tell("internal error", details=str(excrepr))

    def pytest_sessionfinish(self) -> None:
        """End the events, and what has started the workers."""
        self.events.close()
        if self.server is not None:
            self.server.close()


def _preparation(config: pytest.Config) -> str:
    files = [Path(argument) for argument in config.args]
    if levels.are_bare(files):
        return _BARE
    operators = levels.find("ops").path
    return _OPERATORS if any(file.is_relative_to(operators) for file in files) else _TORCH


@dataclass(frozen=True)
class _Death:
    """How a worker ended."""

    outcome: str
    message: str
    details: str

    @classmethod
    def of(cls, lines: list[str]) -> "_Death":
        """From what faulthandler wrote."""
        hung = next((line for line in lines if line.startswith(_HUNG)), None)
        fatal = next((line for line in lines if line.startswith(_FATAL)), None)
        if hung is not None:
            message = f"did not end in {hung.removeprefix(_HUNG).removesuffix(')!')} (h:mm:ss) and was stopped"
            message += f"{_where(lines)}; {patience.how_busy()}"
        elif fatal is not None:
            message = f"the process crashed: {fatal.removeprefix(_FATAL)}{_where(lines)}"
        else:
            message = "the process ended without a word, as after exit() or the kernel's out-of-memory killer"
        return cls("hung" if hung is not None else "crashed", message, "\n".join(lines))


def _where(lines: list[str]) -> str:
    """The call that did not return, and where the test made it, from the first thread that runs a test."""
    call = None
    for line in lines:
        frame = _FRAME.match(line)
        call = (call or frame) if frame else None
        if frame and call and Path(frame["file"]).name.startswith("test_"):
            what = f"in {call['function']} ({Path(call['file']).name}:{call['line']})"
            at = f"{Path(frame['file']).name}:{frame['line']}"
            return f", {what}" if call is frame else f", {what} of {at}"
    return ""


def _message(report: pytest.TestReport) -> str:
    """What went wrong, on one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        first = str(crash.message).strip().partition("\n")[0]
        return first.removeprefix("Failed: ").removeprefix("AssertionError: ")
    if report.failed and report.longreprtext.strip():
        return report.longreprtext.strip().splitlines()[-1]
    return ""


def _split(lines: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What a worker noted about the test, and what was written when it died."""
    noted: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        if not line.startswith("{"):
            return noted, lines[number:]
        noted.append(json.loads(line))
    return noted, []
