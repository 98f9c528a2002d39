"""``torch-backend info``: what a device is, and what is in force here."""

import os
import platform
from typing import Any

import click
from rich.table import Table

from torch_backend.cli import _choice, _output
from torch_backend.devices import description, selection
from torch_backend.files import installed, native
from torch_backend.version import __version__

_MIB = 1 << 20
_GIB = 1 << 30


@click.command(short_help="Show devices, versions and settings.")
@click.argument("device", required=False, shell_complete=_choice.complete)
@_output.json_option
def info(device: str | None, as_json: bool) -> None:
    """Show the devices of a plugin, and the versions and settings in force. Starts the device's driver.

    DEVICE is a name from `torch-backend list`, or module:Class; by default what `import torch` takes.
    """
    torch_version = _output.import_torch()
    try:
        native.require()
    except ImportError as error:
        _output.fail(str(error), code=1)
    candidate = _choice.candidate(device, "info <{}>")
    try:
        plugin = {**description.of_plugin(candidate.load()), "source": candidate.source}
    except Exception as error:
        _output.fail(f"{candidate.name} ({candidate.source}): {selection.describe(error)}", code=1)
    from torch_backend import _C

    report: dict[str, Any] = {
        "torch_backend": __version__,
        "abi": "{}.{}".format(*_C.abi_version()),
        "torch": torch_version,
        "built_for_torch": installed.torch_built_for(),
        "python": platform.python_version(),
        "environment": {key: value for key, value in sorted(os.environ.items()) if key.startswith("TORCH_BACKEND")},
        "plugin": plugin,
    }
    if as_json:
        _output.print_json(report)
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    console = _output.console()
    plugin = report["plugin"]
    general = _two_columns()
    built_for = report["built_for_torch"]
    general.add_row("torch_backend", f"{report['torch_backend']}, device ABI {report['abi']}")
    general.add_row("torch", report["torch"] + (f" (built for {built_for})" if built_for else ""))
    general.add_row("python", report["python"])
    general.add_row("plugin", f"{plugin['name']} {plugin['version']} by {plugin['vendor']}, device ABI {plugin['abi']}")
    general.add_row("library", plugin["path"])
    general.add_row("found", plugin["source"])
    general.add_row("tables", ", ".join(plugin["tables"]) or "none")
    for key, value in report["environment"].items():
        general.add_row(key, value)
    console.print(general)
    if not plugin["devices"]:
        console.print(f"\n{plugin['name']} finds no devices.", highlight=False)
    for index, device in enumerate(plugin["devices"]):
        console.print(f"\n{plugin['name']}:{index}", style="bold", highlight=False)
        table = _two_columns()
        for key, value in device.items():
            table.add_row(key, _readable(key, value))
        console.print(table)


def _readable(key: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if key == "total_memory_bytes" and value == 0:
        return "unknown"
    if key.endswith("_bytes") and value >= _MIB:
        size = f"{value / _GIB:.1f} GiB" if value >= _GIB else f"{value / _MIB:.1f} MiB"
        return f"{value} ({size})"
    return str(value)


def _two_columns() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table
