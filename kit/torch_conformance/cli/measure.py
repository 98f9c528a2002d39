"""``measure``: what a device costs."""

import json
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_conformance.cli import output
from torch_conformance.cli.device import device_options, route_of
from torch_conformance.measure import report

_PARTS = ("calls", "kernels", "models")


@click.command(short_help="Measure what calls, kernels and models cost on a device.")
@click.argument("parts", nargs=-1, type=click.Choice(_PARTS))
@device_options
@click.option("--against", metavar="NAME", help="A second device in the same process: cpu, cuda.")
@click.option("--quick", is_flag=True, help="Small sizes, few rounds.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the numbers as JSON, as they come, for compare."
)
def measure(
    parts: tuple[str, ...],
    name: str | None,
    modules: tuple[str, ...],
    profile_file: Path | None,
    against: str | None,
    quick: bool,
    json_file: Path | None,
) -> None:
    """Measure a device: numbers with their spread, none of which passes or fails.

    PARTS are calls (what the host pays for a call), kernels (times and bandwidth of large ones) and models (training
    steps with the shapes of well-known models, and who served their operators); all of them by default.
    """
    try:
        route = route_of(name, modules, profile_file)
        from torch_conformance.measure import run

        console = output.console()

        def tell(so_far: report.Measurements) -> None:
            _show(so_far.rows[-1], route.device, against, console)
            if json_file is not None:
                json_file.write_text(json.dumps(so_far.to_json(), indent=1), encoding="utf-8")

        found = run.measure(route, against=against, parts=parts or _PARTS, quick=quick, tell=tell)
    except (ImportError, OSError, ValueError) as error:
        output.fail(str(error), code=2)
    console.print(f"\n{', '.join(f'{key} {value}' for key, value in found.facts.items())}")


def _show(row: Any, device: str, against: str | None, console: Console) -> None:
    table = Table.grid(padding=(0, 2))
    for width in (8, 34, 26, 26, 8):
        table.add_column(width=width, no_wrap=True)
    cells = [_cell(row, each) for each in (device, against) if each is not None]
    ratio = row.ratio(device, against) if against else None
    table.add_row(row.part, row.name, *cells, f"x {ratio:.2f}" if ratio else "")
    console.print(table)
    if row.served:
        console.print(f"{'':10}operators: " + ", ".join(f"{count:,} {kind}" for kind, count in row.served.items()))


def _cell(row: Any, device: str) -> str:
    if device not in row.times:
        return str(row.errors.get(device, "-"))
    time = row.times[device]
    spread = (time.high - time.low) / 2 / time.median
    text = f"{_seconds(time.median)} ± {spread:.0%}"
    return f"{text} {row.bytes / time.median / 1e9:,.0f} GB/s" if row.bytes else text


def _seconds(value: float) -> str:
    for unit, factor in (("s ", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.0f} ns"


def are_measurements(file: Path) -> bool:
    """Whether the file is one of ``measure --json``; False for any other, and for one that cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == report.KIND


def show_differences(old: Path, new: Path) -> NoReturn:
    """Print what is slower and what is faster in the second, and end with 1 if anything is slower."""
    before, after = (_read(file) for file in (old, new))
    found = report.differences(before, after)
    console = output.console()
    for name, one, other in ((key, before.facts.get(key, "-"), value) for key, value in after.facts.items()):
        console.print(f"{name}: {one}" + (f" -> {other}" if one != other else ""))
    table = Table(box=None, pad_edge=False, show_header=False)
    for difference in found:
        times = f"{_seconds(difference.old.median)} -> {_seconds(difference.new.median)}"
        style = "red" if difference.is_worse else "green"
        table.add_row(difference.what, times, Text(f"x {difference.ratio:.2f}", style=style))
    console.print(table)
    slower = sum(difference.is_worse for difference in found)
    console.print(f"\n{slower:,} slower, {len(found) - slower:,} faster, of {len(after.rows):,}.")
    raise click.exceptions.Exit(1 if slower else 0)


def _read(file: Path) -> report.Measurements:
    try:
        return report.Measurements.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        output.fail(f"{file} cannot be compared: {error}", code=2)
