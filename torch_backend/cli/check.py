"""``torch-backend check``: how much of PyTorch works on a device."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from torch_backend.cli import _output
from torch_backend.files import extras

if TYPE_CHECKING:
    from torch_backend.testing import Report, Result, UpstreamReport
    from torch_backend.testing.session import Progress as TellProgress

_ALL_LEVELS = "7"


def check(
    device: Annotated[
        str, typer.Argument(help="A name from `torch-backend list`, the path of a device library, or module:Class.")
    ],
    level: Annotated[str, typer.Option(help="Stop after this level: a number or a name.")] = _ALL_LEVELS,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what takes long: under a minute.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Run tests whose id has this part, or matches with * and ?. Repeatable.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the device library. Repeatable.")
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="Import this module once the device is active: kernels for it. Repeatable."),
    ] = None,
    expectations: Annotated[
        Path | None, typer.Option(help="Known failures. By default expectations.toml beside the device library.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Tests to run at a time.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one test may take.")] = 120,
    upstream: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run PyTorch's own device-generic tests from this checkout instead."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the report as JUnit XML.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every test with what it proves, and tracebacks.")
    ] = False,
) -> None:
    """Test how much of PyTorch works on a device, level by level. A crash or hang ends one test, not the run.

    What a device does not declare is not tested, and listed. The exit code is 0 if nothing fails that its expectations
    do not explain.
    """
    _require_extra()
    from torch_backend.testing import LEVELS, UpstreamReport, check, check_upstream, find_level
    from torch_backend.testing.report import terminal, upstream_terminal

    console = _output.console()
    try:
        shared: dict[str, Any] = {
            "only": only or (),
            "imports": imports or (),
            "options": dict(_pair(text) for text in option or ()),
            "expected": expectations,
            "workers": jobs,
            "test_timeout": timeout,
        }
        report: Report | UpstreamReport
        with _progress() as tell:
            if upstream is None:
                levels = LEVELS[: find_level(level).number]
                report = check(device, levels=levels, quick=quick, progress=tell, **shared)
            else:
                _refuse_levels(level, quick, html_file)
                report = check_upstream(device, upstream, progress=tell, **shared)
    except (ValueError, OSError) as error:
        _output.fail(str(error), code=2)
    _write(report, json_file, junit_file, html_file)
    if isinstance(report, UpstreamReport):
        upstream_terminal.show(report, console, verbose)
    else:
        terminal.show(report, console, verbose)
    raise typer.Exit(0 if report.ok else 1)


def _refuse_levels(level: str, quick: bool, html_file: Path | None) -> None:
    given = [("--level", level != _ALL_LEVELS), ("--quick", quick), ("--html", html_file is not None)]
    if wrong := [name for name, is_given in given if is_given]:
        raise ValueError(f"{' and '.join(wrong)} cannot be given with --upstream, which has no levels.")


def _require_extra() -> None:
    if missing := extras.missing("check"):
        _output.fail(
            f"The conformance kit needs {', '.join(missing)}. Install it with: pip install 'torch_backend[check]'",
            code=1,
        )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--option {text}: expected KEY=VALUE, as in --option async=1.")
    return key, value


@contextlib.contextmanager
def _progress() -> Iterator["TellProgress"]:
    """A progress bar on stderr, where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("opening the device", total=None, failed="")
        failures = 0
        done = 0
        session_total = 0

        def tell(result: "Result", total: int) -> None:
            nonlocal failures, done, session_total
            from torch_backend.testing.results import FAILURES

            if total != session_total:
                session_total, done = total, 0
            done += 1
            failures += result.outcome in FAILURES
            bars.update(
                task,
                description=result.test.split("::")[0],
                total=total,
                completed=done,
                failed=f"{failures} failed" if failures else "",
            )

        yield tell


def _write(
    report: "Report | UpstreamReport", json_file: Path | None, junit_file: Path | None, html_file: Path | None
) -> None:
    try:
        if json_file is not None:
            json_file.write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")
        if junit_file is not None:
            from torch_backend.testing.report import junit

            junit.write(report, junit_file)
        if html_file is not None:
            from torch_backend.testing import Report
            from torch_backend.testing.report import html

            assert isinstance(report, Report)  # see _refuse_levels
            html.write(report, html_file)
    except OSError as error:
        _output.fail(f"The report could not be written: {error}", code=1)
