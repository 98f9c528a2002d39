"""Which device a subcommand is about, and making it the active one."""

from typing import TYPE_CHECKING

import click

from torch_backend.cli import _output
from torch_backend.devices import activation, loading, selection
from torch_backend.devices.discovery import Candidate, discover
from torch_backend.files import location, native

if TYPE_CHECKING:
    from torch_backend._C import Plugin


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of devices that begin like that, for the shell."""
    names = {found.name for found in discover() if found.name is not None}
    return sorted(name for name in names if name.startswith(incomplete))


device_option = click.option(
    "--device",
    shell_complete=complete,
    help="A name from `torch-backend list`, or a path; by default what `import torch` uses.",
)


def candidate(device: str | None, usage: str) -> Candidate:
    """The device called ``device``, or what `import torch` activates. Ends the command with code 2 without one.

    ``usage`` says how to name a device, "info <{}>" with braces for the names.
    """
    if device is not None:
        try:
            return selection.find(device)
        except ValueError as error:
            _output.fail(str(error), code=2)
    choice = selection.choose()
    if choice.candidate is not None:
        return choice.candidate
    names = ", ".join(candidate.name for candidate in discover() if candidate.name is not None)
    reasons = " ".join(choice.problems) or "`import torch` activates no device here."
    _output.fail(f"{reasons} Name one: torch-backend {usage.format(names or 'name')}", code=2)


def activate(device: str | None, usage: str) -> "Plugin":
    """Activate ``device``, a name or the place of a device library, or what `import torch` activates.

    Ends the command with code 2 if there is no such device and 1 if it does not work.
    """
    _output.import_torch()
    try:
        native.require()
    except ImportError as error:
        _output.fail(str(error), code=1)
    if device is not None and location.is_place(device):
        if not location.exists(device):
            _output.fail(f"There is no device library {device}.", code=2)
        return _activate(device, None)
    chosen = candidate(device, usage)
    return _activate(f"{chosen.name} ({chosen.source})", chosen)


def _activate(what: str, chosen: Candidate | None) -> "Plugin":
    try:
        return activation.activate(loading.load(what) if chosen is None else chosen.load())
    except Exception as error:
        _output.fail(f"{what}: {selection.describe(error)}", code=1)
