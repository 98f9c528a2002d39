"""``torch-backend list``: every device that can be found, and whether it works."""

from dataclasses import asdict, dataclass, replace

import click
from rich.table import Table

from torch_backend.cli import _output
from torch_backend.devices import selection
from torch_backend.devices.discovery import Candidate, discover


@dataclass(frozen=True)
class Listing:
    """One line of the list. What cannot be known because the library does not load is None."""

    name: str | None
    origin: str
    source: str
    path: str | None
    vendor: str | None
    version: str | None
    abi: str | None
    devices: int | None
    status: str  # "ok", "no devices" or "error"
    error: str | None
    default: bool  # what `import torch` activates in this environment


def describe(candidate: Candidate) -> Listing:
    """Load the candidate's library and say what it is."""
    plugin, count, error = None, None, None
    try:
        plugin = candidate.load()
        count = plugin.device_count()
    except (Exception, SystemExit) as failure:
        error = selection.describe(failure)
    return Listing(
        name=candidate.name,
        origin=candidate.origin.value,
        source=candidate.source,
        path=candidate.path,
        vendor=plugin.vendor if plugin is not None else None,
        version=plugin.version if plugin is not None else None,
        abi="{}.{}".format(*plugin.abi_version) if plugin is not None else None,
        devices=count,
        status="error" if error is not None else "ok" if count else "no devices",
        error=error,
        default=False,
    )


@click.command("list")
@_output.json_option
def list_devices(as_json: bool) -> None:
    """List every device that can be found. The one that `import torch` activates here has a star."""
    _output.import_torch()
    choice = selection.choose()
    chosen = choice.candidate.path if choice.candidate is not None else None
    listings: list[Listing] = []
    for candidate in discover():
        listing = describe(candidate)
        is_default = chosen is not None and listing.path == chosen and not any(other.default for other in listings)
        listings.append(replace(listing, default=is_default))
    if as_json:
        _output.print_json([asdict(listing) for listing in listings])
        return
    console = _output.console()
    if listings:
        console.print(_table(listings))
    else:
        console.print("No device library is installed.")
    for listing in listings:
        if listing.error is not None:
            console.print(f"{listing.name or listing.path}: {listing.error}", markup=False, highlight=False)
    for problem in choice.problems:
        console.print(f"import torch: {problem}", markup=False, highlight=False)


def _table(listings: list[Listing]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "name", "vendor", "version", "ABI", "devices", "status", "found"):
        table.add_column(heading, overflow="fold")
    for entry in listings:
        table.add_row(
            "*" if entry.default else "",
            *(str(value) if value is not None else "-" for value in (entry.name, entry.vendor, entry.version)),
            entry.abi or "-",
            str(entry.devices) if entry.devices is not None else "-",
            entry.status,
            entry.source,
        )
    return table
