"""``torch-backend doctor``: why a device does not appear or does not work."""

from dataclasses import asdict

import click
from rich.console import Console
from rich.text import Text

from torch_backend.cli import _choice, _output
from torch_backend.diagnosis import STEP_SECONDS, Finding, Severity, diagnose

_STYLES = {Severity.OK: "green", Severity.NOTE: "yellow", Severity.PROBLEM: "bold red"}
_MARGIN = 9


@click.command(short_help="Say why a device does not appear or does not work.")
@click.argument("device", required=False, shell_complete=_choice.complete)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=STEP_SECONDS,
    show_default=True,
    help="Seconds that one call of a device library may take.",
)
@_output.json_option
def doctor(device: str | None, timeout: float, as_json: bool) -> None:
    """Say why a device does not appear or does not work, and what to do.

    DEVICE is a name, the path of a library, or module:Class; by default all that can be found.

    Looks at the installation, settings, places and files, then calls each library in a process of its own. What a call
    returns is checked for being possible, not for being right: that is `torch-backend check`. The exit code is 0 if
    nothing is wrong. JSON: a list of {"severity", "subject", "text", "todo"}.
    """
    console = _output.console()
    findings: list[Finding] = []
    for finding in diagnose(device, step_seconds=timeout):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    if as_json:
        _output.print_json([{**asdict(finding), "severity": finding.severity.value} for finding in findings])
    else:
        console.print(f"\n{problems} problems found." if problems != 1 else "\n1 problem found.", highlight=False)
    raise click.exceptions.Exit(1 if problems else 0)


def _show(console: Console, finding: Finding) -> None:
    line = Text(finding.severity.value.ljust(_MARGIN), style=_STYLES[finding.severity])
    line.append(f"{finding.subject}: {finding.text}", style="default")
    console.print(line, soft_wrap=True)
    if finding.todo:
        console.print(Text(" " * _MARGIN + finding.todo), soft_wrap=True)
