"""The operators that a script needs, of ``torch-backend ops --needed-for``."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from torch_backend.cli import _choice, _output, _script


def run(script: str, arguments: Sequence[str], device: str | None, as_json: bool) -> None:
    """Run the script on the device, as Python would, and print what it called there."""
    _script.check(script)
    plugin = _choice.activate(device, f"ops --needed-for {script} --device <{{}}>")
    from torch_backend import operators

    with operators.count_calls() as counts:
        _script.run(script, arguments, "what it called until then is not all that it needs.")
    needed = operators.needed_operators(counts.entries)
    if as_json:
        _output.print_json({"device": plugin.name, "operators": [asdict(entry) for entry in needed]})
        return
    if not needed:
        _output.fail(f"{script} has called no operator on {plugin.name}: does it use the device?", code=1)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("calls", justify="right")
    table.add_column("with modules")
    table.add_column("schema", overflow="fold")
    for entry in needed:
        table.add_row(entry.op, f"{entry.calls:,}", "generated" if entry.generated else "-", entry.schema)
    console = _output.console()
    console.print(table)
    given = sum(entry.generated for entry in needed)
    console.print(
        f"\n{len(needed)} operators on {plugin.name}; a device that takes modules gets {given} of them, and needs "
        f"kernels of its own for {len(needed) - given}.",
        highlight=False,
    )
