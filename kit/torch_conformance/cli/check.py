"""``check``: how much of PyTorch works on a device."""

import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from torch_conformance import conformance, fingerprint
from torch_conformance.cli import output
from torch_conformance.cli.device import device_options, route_of
from torch_conformance.journal import Journal
from torch_conformance.levels import DEVICE, LEVELS
from torch_conformance.levels import find as find_level
from torch_conformance.report import html, junit, terminal, upstream_terminal
from torch_conformance.results import FAILURES
from torch_conformance.routes.library import Library
from torch_conformance.upstream import UpstreamReport, check_upstream

if TYPE_CHECKING:
    from torch_conformance.levels import Level
    from torch_conformance.report.findings import Report
    from torch_conformance.results import Result
    from torch_conformance.routes import Route
    from torch_conformance.routes.pytorch import InPyTorch
    from torch_conformance.session import Progress as TellProgress

_ALL_LEVELS = "7"
_FILE: Any = click.Path(path_type=Path)


def _shared_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--level", default=_ALL_LEVELS, show_default=True, help="Stop after this level: number or name."),
        click.option(
            "--quick",
            is_flag=True,
            help="Leave out what takes long: a minute or two; of PyTorch's own tests, run a few of each.",
        ),
        click.option(
            "--only", multiple=True, help="Run tests whose id has this part, or matches with * and ?. Repeatable."
        ),
        click.option("--skip", multiple=True, help="Leave out tests as --only names them, and list them. Repeatable."),
        click.option(
            "--last-failed", type=_FILE, metavar="REPORT", help="Run only what has failed in this JSON report."
        ),
        click.option("--resume", is_flag=True, help="Go on with the run that was to write the --json report."),
        click.option(
            "--upstream",
            type=_FILE,
            metavar="DIR",
            help="Run PyTorch's own device-generic tests from this checkout instead.",
        ),
        click.option("--jobs", "-j", type=click.IntRange(min=1), help="Tests to run at a time."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=120,
            show_default=True,
            help="Seconds that one test may take.",
        ),
        click.option(
            "--json",
            "json_file",
            type=_FILE,
            metavar="FILE",
            help="Write the report as JSON; results, as they come, to FILE.partial.",
        ),
        click.option("--junit", "junit_file", type=_FILE, help="Write the report as JUnit XML."),
        click.option("--html", "html_file", type=_FILE, help="Write the report as one HTML page."),
        click.option("--verbose", "-v", is_flag=True, help="Print every test with what it proves, and tracebacks."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _complete_device(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
    from torch_backend.cli import _choice

    return _choice.complete(context, parameter, incomplete)


@click.command("check", short_help="Test how much of PyTorch works on a device.")
@click.argument("device", shell_complete=_complete_device)
@_shared_options
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
def check_library(
    device: str,
    options: tuple[str, ...],
    imports: tuple[str, ...],
    expectations: Path | None,
    **shared: Any,
) -> None:
    """Test how much of PyTorch works on a device, level by level. A crash or hang ends one test, not the run.

    DEVICE is a name from `torch-backend list`, the path of a device library, or module:Class.

    What a device does not declare is not tested, and listed. The exit code is 0 if nothing fails that its expectations
    do not explain.
    """

    def route() -> Library:
        return Library(device, imports, dict(_pair(text) for text in options))

    run = {"device": device, "options": sorted(options), "imports": imports}
    _run(route, run, expectations, **shared)


@click.command(short_help="Test how much of PyTorch works on a device.")
@device_options
@click.option("--strict", is_flag=True, help="The device has to have all that CUDA has: nothing is not offered.")
@_shared_options
@click.option("--expectations", type=_FILE, help="Known failures. By default those in the profile.")
def check(
    name: str | None,
    modules: tuple[str, ...],
    profile_file: Path | None,
    strict: bool,
    expectations: Path | None,
    **shared: Any,
) -> None:
    """Test how much of PyTorch works on any device that it has, level by level.

    In PyTorch's tree (`--device cuda`) or brought by a module (`--device acme --module torch_acme`). A crash or hang
    ends one test, not the run. What the device has not got, by its profile or when it is asked, is not tested, and
    listed. The exit code is 0 if nothing fails that its expectations do not explain.
    """

    def route() -> "InPyTorch":
        return route_of(name, modules, profile_file, strict=strict)

    run = {"device": name, "modules": modules, "profile": profile_file and str(profile_file), "strict": strict}
    _run(route, run, expectations, **shared)


def _run(
    route: "Callable[[], Route]",
    run: dict[str, Any],
    expectations: Path | None,
    *,
    upstream: Path | None,
    level: str,
    quick: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    last_failed: Path | None,
    resume: bool,
    jobs: int | None,
    timeout: float,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    verbose: bool,
) -> None:
    """Test, and tell what was found. ``run``: what makes it another run than one that was begun before."""
    not_with_upstream = {"--level": level != _ALL_LEVELS, "--last-failed": last_failed is not None, "--resume": resume}
    for option, is_given in not_with_upstream.items():
        if is_given and upstream is not None:
            output.fail(f"{option} cannot be given with --upstream, which runs files, not levels.", code=2)
    try:
        levels = LEVELS[: find_level(level).number] if upstream is None else ()
        named = _failed_in(last_failed) if last_failed is not None else None
        run |= {"quick": quick, "only": only, "skip": skip, "named": named}
        run |= {"levels": [each.name for each in levels], "suite": fingerprint.of_suite()}
        with _ended_by_sigterm(), _progress(levels) as tell, _journal(json_file, run, resume) as journal:

            def take(result: "Result", session: "Sequence[str]") -> None:
                if journal is not None:
                    journal.add(result)
                tell(result, session)

            report: Report | UpstreamReport
            chosen: dict[str, Any] = {"quick": quick, "only": only, "skip": skip, "expected": expectations}
            chosen |= {"workers": jobs, "test_timeout": timeout, "progress": take}
            if upstream is not None:
                report = check_upstream(route(), upstream, **chosen)
            else:
                done = () if journal is None else journal.before
                report = conformance.check(route(), levels=levels, named=named, done=done, **chosen)
            _write(report, json_file, junit_file, html_file)
            # What the run did not come to, --resume can go on with.
            if journal is not None and not any(result.outcome == "not run" for result in report.results):
                journal.delete()
    except (ValueError, OSError) as error:
        output.fail(str(error), code=2)
    if isinstance(report, UpstreamReport):
        upstream_terminal.show(report, output.console(), verbose)
    else:
        terminal.show(report, output.console(), verbose)
    raise click.exceptions.Exit(0 if report.ok else 1)


def _failed_in(file: Path) -> list[str]:
    """The tests that failed in a report. Raises ValueError if there are none, or it is no report."""
    report = output.read_report(file)
    if not report.failures:
        raise ValueError(f"Nothing has failed in {file}.")
    return [result.test for result in report.failures if result.level != DEVICE]


@contextlib.contextmanager
def _journal(json_file: Path | None, run: Mapping[str, Any], resume: bool) -> Iterator[Journal | None]:
    """Keep results as they come beside the report that is to have them; without a report, nothing is kept."""
    if json_file is None:
        if resume:
            raise ValueError("--resume goes on with what --json FILE has left in FILE.partial: give --json too.")
        yield None
        return
    path = json_file.with_name(f"{json_file.name}.partial")
    journal = Journal(path, json.loads(json.dumps(run)), resume=resume)
    try:
        yield journal
    except (KeyboardInterrupt, SystemExit):
        print(f"\n{path} has the results so far. The same command with --resume goes on.", file=sys.stderr)
        raise
    finally:
        journal.close()


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, as CI sends it, ends what the run has started too."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--option {text}: expected KEY=VALUE, as in --option async=1.")
    return key, value


@contextlib.contextmanager
def _progress(levels: "Sequence[Level]") -> Iterator["TellProgress"]:
    """On stderr: a bar where that is a terminal, else a line for each tenth of the run, or each of PyTorch's files."""
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
        failures = tenths = 0
        share = _Share(levels)
        start = time.monotonic()

        def tell(result: "Result", session: "Sequence[str]") -> None:
            nonlocal failures, tenths
            failures += result.outcome in FAILURES
            completed = share.with_test(result.test, session)
            failed = f"{failures} failed" if failures else ""
            file = result.test.split("::")[0].removesuffix(".py")
            tests = f"{share.done}/{len(session)}"
            bars.update(task, description=file, total=1.0, completed=completed, tests=tests, failed=failed)
            tenths, before = int(10 * completed), tenths
            if not console.is_terminal and tenths != before and (levels or completed == 1):
                left = (time.monotonic() - start) * (1 / completed - 1)
                about = f"about {left:.0f} s left" if completed < 1 else ""
                console.print(", ".join(filter(None, (f"{file}: {tests} tests", failed, about))), highlight=False)

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
        if session is not self._session:
            self._session, self.done = session, 0
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
            junit.write(report, junit_file)
        if html_file is not None:
            html.write(report, html_file)
    except OSError as error:
        output.fail(f"The report could not be written: {error}", code=1)
