"""The kit's side in each pytest worker: opens the device, picks the tests, notes what they do.

It is for :mod:`torch_conformance.session`, and for debugging one test without that::

    pytest -p torch_conformance.pytest_plugin --device xcpu kit/torch_conformance/suite/tensor/test_views.py
"""

import faulthandler
import inspect
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from torch_conformance import (
    facts,
    levels,
    needs,
    patience,
    routes,
    selection,
    unsupported,
    upstream_copies,
    upstream_rules,
)
from torch_conformance.declaration import Declaration

if TYPE_CHECKING:
    from torch_backend.abi import DeviceLibrary

DEFAULT_TIMEOUT = 120.0
"""Seconds that one test may take on an idle machine."""

STARTUP_TIMEOUT = 120.0
"""Seconds that a worker may take on an idle machine to open the device and load the tests; at least those of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the kit tells its workers."""
    group = parser.getgroup("torch_backend")
    group.addoption("--device", help="name of a device, path of its library, or a route as JSON", required=True)
    group.addoption("--run-dir", type=Path, help="where workers write what the report needs if one of them crashes")
    group.addoption("--quick", action="store_true", help="leave out what takes long")
    group.addoption("--upstream", action="store_true", help="the tests are PyTorch's own")
    group.addoption("--only", action="append", default=[], help="a pattern of test ids, may be repeated")
    group.addoption("--skip", action="append", default=[], help="a pattern of test ids to leave out, may be repeated")
    group.addoption("--tests", type=Path, help="a JSON file: the ids of the tests to run, and of those that were run")
    group.addoption("--import", action="append", default=[], dest="imports", help="a module to import first")
    group.addoption("--test-timeout", type=float, default=DEFAULT_TIMEOUT, help="seconds that one test may take")


def pytest_configure(config: pytest.Config) -> None:
    """Open the device in a process that runs tests."""
    config.addinivalue_line("markers", "needs(kind, value): see torch_conformance.needs")
    config.addinivalue_line("markers", "promise(names): see torch_conformance.promises")
    config.addinivalue_line("markers", "thorough: left out by --quick")
    config.addinivalue_line("markers", "timeout(seconds): may take longer than --test-timeout")
    if config.getoption("numprocesses", None):
        return  # the process that hands out tests
    selection.of_this_process = _choice(config)
    worker = Worker(config)
    config.pluginmanager.register(worker, "torch_backend worker")


def _choice(config: pytest.Config) -> selection.Choice:
    file: Path | None = config.getoption("--tests")
    ids = json.loads(file.read_text(encoding="utf-8")) if file is not None else {"named": None, "done": []}
    return selection.Choice(
        quick=config.getoption("--quick"),
        patterns=config.getoption("--only"),
        named=None if ids["named"] is None else frozenset(ids["named"]),
        done=frozenset(ids["done"]),
        skipped=config.getoption("--skip"),
    )


def _name_of_worker(config: pytest.Config) -> str:
    """xdist's name of this process, else "main". Its environment is handed down to runs that a test starts."""
    given: dict[str, str] = getattr(config, "workerinput", {})
    return given.get("workerid", "main")


class Worker:
    """Runs tests on one device, in this process."""

    def __init__(self, config: pytest.Config) -> None:  # noqa: D107  # the class says it
        self.config = config
        self.timeout: float = config.getoption("--test-timeout")
        self.upstream: bool = config.getoption("--upstream")
        self.log = self._open_log()
        self.library: DeviceLibrary | None = None
        self.test_failed = False
        self._end_after(max(STARTUP_TIMEOUT, self.timeout))  # until the tests are collected
        try:
            self.declaration = self._open_device(config.getoption("--device"))
        except Exception as error:
            if self.log is None:
                raise
            self._note({"no_start": _said_by(error)})
            traceback.print_exc(file=self.log)
            self.log.flush()
            os._exit(1)

    def _open_device(self, device: str) -> Declaration:
        if levels.are_bare(Path(argument.split("::")[0]) for argument in self.config.args):
            self.library, declaration = _open(device)
            return declaration
        if self.upstream and device == upstream_rules.CONTROL:
            upstream_copies.let_devices_be_absent()
            return upstream_rules.control_declaration()
        declaration = routes.activate(routes.parse(device, self.config.getoption("imports")))
        if self.upstream:
            upstream_rules.tell_what_the_device_is_called()
        return declaration

    def _open_log(self) -> TextIO | None:
        directory: Path | None = self.config.getoption("--run-dir")
        if directory is None:
            return None
        name = _name_of_worker(self.config)
        # Appending, so that what faulthandler writes to the descriptor comes after what was written before.
        log = (directory / f"{name}.log").open("a", encoding="utf-8")
        faulthandler.enable(log)
        return log

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Pick the tests of this run, and write down which there are."""
        directory: Path | None = config.getoption("--run-dir")
        if self.upstream:
            items[:] = [item for item in items if upstream_rules.is_about(item, self.declaration.name)]
        choice = selection.of_this_process
        proves = {item.nodeid: _proves(item) for item in items}
        needed = {item.nodeid: [list(marker.args) for marker in item.iter_markers("needs")] for item in items}
        is_thorough = {item: item.get_closest_marker("thorough") is not None for item in items}
        gone = {item for item in items if not choice.has(item.nodeid, is_thorough=is_thorough[item])}
        if choice.quick and self.upstream:
            gone |= set(items) - upstream_rules.few_of_each(item for item in items if item not in gone)
        skipped = {item.nodeid: choice.skips(item.nodeid) for item in items if item not in gone}
        skipped = {test: pattern for test, pattern in skipped.items() if pattern is not None}
        gone |= {item for item in items if item.nodeid in skipped}
        if directory is not None:
            path = directory / f"collected-{_name_of_worker(config)}.json"
            found = {"proves": proves, "needs": needed, "skipped": skipped}
            path.write_text(json.dumps(found), encoding="utf-8")
        if gone:
            config.hook.pytest_deselected(items=list(gone))
            items[:] = [item for item in items if item not in gone]
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note which test runs, and end this process if the test does not end."""

        def take(new: dict[str, object]) -> None:
            item.user_properties.extend(new.items())
            self._note(new)

        facts.record_to(take)
        self._note({"test": item.nodeid}, restart=True)
        marker = item.get_closest_marker("timeout")
        self._end_after(float(marker.args[0]) if marker else self.timeout)
        self.test_failed = False
        yield
        faulthandler.cancel_dump_traceback_later()
        facts.record_to(None)
        if self.test_failed and self.library is None:
            self._end_if_lost()

    def _may_lack(self) -> bool:
        """Whether the device may be without kernels that no device has to have: one of torch_backend's has them."""
        ours = self.upstream or self.library is not None or self.declaration.lacks("feature", "torch_backend") is None
        return not (ours or self.declaration.strict)

    def _end_if_lost(self) -> None:
        """End this process if the test has cost it the device: all that follow would fail for that alone.

        Such as after an error in a kernel of CUDA's, after which a process cannot use the device any more.
        """
        if self.log is None:
            return
        import torch

        try:
            torch.ones(1, device=self.declaration.name).add_(1).cpu()
        except Exception as error:
            self._note({"lost": _said_by(error)})
            os._exit(1)

    def _end_after(self, seconds: float) -> None:
        # By a thread that needs no interpreter: a device that hangs may hold the interpreter's lock.
        if self.log is not None:
            faulthandler.dump_traceback_later(patience.seconds(seconds), exit=True, file=self.log)

    def _note(self, entry: dict[str, object], restart: bool = False) -> None:
        if self.log is None:
            return
        if restart:
            self.log.truncate(0)
        self.log.write(json.dumps(entry) + "\n")
        self.log.flush()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out a test that needs what the device does not declare."""
        if not self.upstream and not _proves(item):
            pytest.fail("the test has no docstring that says what it proves", pytrace=False)
        for marker in item.iter_markers("needs"):
            reason = self.declaration.lacks(*marker.args)
            if reason is not None:
                raise needs.NotOffered(reason)
        if self.upstream and (reason := upstream_rules.lacks(item, self.declaration)) is not None:
            raise needs.NotOffered(reason)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Turn a skip that the device's declaration does not explain into a failure."""
        result: Any = yield
        report: pytest.TestReport = result.get_result()
        self.test_failed |= report.failed
        if call.excinfo is None:
            return
        if report.failed and self._may_lack() and (reason := unsupported.reason(call.excinfo.value)) is not None:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, reason)
            report.user_properties.append(("not_offered", reason))
            return
        if not report.skipped:
            return
        if isinstance(call.excinfo.value, needs.NotOffered):
            report.user_properties.append(("not_offered", str(call.excinfo.value)))
        elif self.upstream:
            upstream_rules.explain_skip(report, call.excinfo.value)
        else:
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that the device did not declare: {call.excinfo.value}"


def _proves(item: pytest.Item) -> str:
    """The first sentence of the test's docstring, on one line."""
    function = getattr(item, "function", None)
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n")[0].split())


def _open(device: str) -> tuple["DeviceLibrary", Declaration]:
    from torch_conformance import bare

    return bare.open_library(device)


def _said_by(error: BaseException) -> str:
    """An exception as a sentence; torch may append a backtrace."""
    text = str(error).split("\nException raised from ")[0].strip()
    if not isinstance(error, (RuntimeError, ImportError)) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _worker(config: pytest.Config) -> Worker:
    worker = config.pluginmanager.get_plugin("torch_backend worker")
    assert isinstance(worker, Worker)
    return worker


# ---- fixtures ----


@pytest.fixture(scope="session")
def declaration(pytestconfig: pytest.Config) -> Declaration:
    """What the device declares."""
    return _worker(pytestconfig).declaration


@pytest.fixture(scope="session")
def library(pytestconfig: pytest.Config) -> "DeviceLibrary":
    """The bare device library, initialized. Only for tests that do without torch."""
    library = _worker(pytestconfig).library
    assert library is not None, "the bare library is for tests of level abi"
    return library


@pytest.fixture(scope="session")
def device(declaration: Declaration) -> str:
    """The active device's torch name."""
    return declaration.name


@pytest.fixture(scope="session")
def backend(declaration: Declaration) -> ModuleType:
    """``torch.<name>`` of the active device."""
    return routes.of_this_process().module()


@pytest.fixture(scope="session")
def quick(pytestconfig: pytest.Config) -> bool:
    """Whether the run is to be short."""
    return bool(pytestconfig.getoption("--quick"))
