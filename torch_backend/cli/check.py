"""``torch-backend check``: how much of PyTorch works on a device."""

import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from torch_backend.cli import _choice, _kit, _output

if TYPE_CHECKING:
    from torch_conformance import Level, Report, Result, UpstreamReport
    from torch_conformance.session import Progress as TellProgress

_ALL_LEVELS = "7"
_FILE: Any = click.Path(path_type=Path)


@click.command(short_help="Test how much of PyTorch works on a device.")
@click.argument("device", shell_complete=_choice.complete)
@click.option("--level", default=_ALL_LEVELS, show_default=True, help="Stop after this level: a number or a name.")
@click.option(
    "--quick",
    is_flag=True,
    help="Leave out what takes long: under a minute; of PyTorch's own tests, run a few of each.",
)
@click.option("--only", multiple=True, help="Run tests whose id has this part, or matches with * and ?. Repeatable.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the device library. Repeatable."
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="Import this module once the device is active: kernels for it. Repeatable.",
)
@click.option(
    "--expectations", type=_FILE, help="Known failures. By default expectations.toml beside the device library."
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Tests to run at a time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    help="Seconds that one test may take.",
)
@click.option(
    "--upstream",
    type=_FILE,
    metavar="DIR",
    help="Run PyTorch's own device-generic tests from this checkout instead.",
)
@click.option("--json", "json_file", type=_FILE, help="Write the report as JSON.")
@click.option("--junit", "junit_file", type=_FILE, help="Write the report as JUnit XML.")
@click.option("--html", "html_file", type=_FILE, help="Write the report as one HTML page.")
@click.option("--verbose", "-v", is_flag=True, help="Print every test with what it proves, and tracebacks.")
def check(
    device: str,
    level: str,
    quick: bool,
    only: tuple[str, ...],
    options: tuple[str, ...],
    imports: tuple[str, ...],
    expectations: Path | None,
    jobs: int | None,
    timeout: float,
    upstream: Path | None,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    verbose: bool,
) -> None:
    """Test how much of PyTorch works on a device, level by level. A crash or hang ends one test, not the run.

    DEVICE is a name from `torch-backend list`, the path of a device library, or module:Class.

    What a device does not declare is not tested, and listed. The exit code is 0 if nothing fails that its expectations
    do not explain.
    """
    _kit.require()
    from torch_conformance import LEVELS, UpstreamReport, check, check_upstream, find_level
    from torch_conformance.report import terminal, upstream_terminal

    console = _output.console()
    try:
        shared: dict[str, Any] = {
            "only": only,
            "imports": imports,
            "options": dict(_pair(text) for text in options),
            "expected": expectations,
            "workers": jobs,
            "test_timeout": timeout,
        }
        report: Report | UpstreamReport
        levels = LEVELS[: find_level(level).number] if upstream is None else ()
        with _ended_by_sigterm(), _progress(levels) as tell:
            if upstream is None:
                report = check(device, levels=levels, quick=quick, progress=tell, **shared)
            else:
                _refuse_levels(level)
                report = check_upstream(device, upstream, quick=quick, progress=tell, **shared)
    except (ValueError, OSError) as error:
        _output.fail(str(error), code=2)
    _write(report, json_file, junit_file, html_file)
    if isinstance(report, UpstreamReport):
        upstream_terminal.show(report, console, verbose)
    else:
        terminal.show(report, console, verbose)
    raise click.exceptions.Exit(0 if report.ok else 1)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, as CI sends it, ends what the run has started too."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_levels(level: str) -> None:
    if level != _ALL_LEVELS:
        raise ValueError("--level cannot be given with --upstream, which has no levels.")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--option {text}: expected KEY=VALUE, as in --option async=1.")
    return key, value


@contextlib.contextmanager
def _progress(levels: "Sequence[Level]") -> Iterator["TellProgress"]:
    """A progress bar on stderr, where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[tests]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[failed]}", style="red"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("opening the device", total=None, failed="", tests="")
        failures = 0
        share = _Share(levels)

        def tell(result: "Result", session: "Sequence[str]") -> None:
            nonlocal failures
            from torch_conformance.results import FAILURES

            failures += result.outcome in FAILURES
            bars.update(
                task,
                description=result.test.split("::")[0].removesuffix(".py"),
                total=1.0,
                completed=share.with_test(result.test, session),
                tests=f"{share.done}/{len(session)}",
                failed=f"{failures} failed" if failures else "",
            )

        yield tell


class _Share:
    """How much of a run is done, by what the tests of each level take on xcpu."""

    def __init__(self, levels: "Sequence[Level]") -> None:
        self._left = {level.folder: level.seconds for level in levels}
        self._whole = sum(self._left.values())
        self._cost: dict[str, float] = {}  # of a test, by level
        self._session: Sequence[str] | None = None
        self.done = 0

    def with_test(self, test: str, session: "Sequence[str]") -> float:
        """The share, 1 for all, when this test of a session has ended."""
        folder = test.split("/")[0]
        if folder not in self._left:  # PyTorch's own tests have no levels, but a session for each file
            if session is not self._session:
                self._session, self.done = session, 0
            self.done += 1
            return self.done / max(self.done, len(session))  # of a file that cannot be loaded no test is known
        if folder not in self._cost:
            counts = Counter(each.split("/")[0] for each in session)
            self._cost |= {each: self._left[each] / count for each, count in counts.items()}
            self.done = 0
        self.done += 1
        self._left[folder] -= self._cost[folder]
        return 1 - sum(self._left.values()) / self._whole


def _write(
    report: "Report | UpstreamReport", json_file: Path | None, junit_file: Path | None, html_file: Path | None
) -> None:
    try:
        if json_file is not None:
            json_file.write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")
        if junit_file is not None:
            from torch_conformance.report import junit

            junit.write(report, junit_file)
        if html_file is not None:
            from torch_conformance.report import html

            html.write(report, html_file)
    except OSError as error:
        _output.fail(f"The report could not be written: {error}", code=1)
