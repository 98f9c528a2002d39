"""What PyTorch asks of a device, of ``torch-backend ops``: ``--declarations`` and ``--diff``."""

from collections import Counter
from typing import get_args

from rich.table import Table

from torch_backend.cli import _output, _patterns
from torch_backend.declarations import REASONS, Declaration, Declarations, Requirement, difference, installed, load


def list_declarations(requirement: str | None, pattern: str | None, as_json: bool) -> None:
    """Print the declarations of the installed torch that ``pattern`` and ``requirement`` choose, and counts."""
    if requirement is not None and requirement not in get_args(Requirement):
        known = ", ".join(map(repr, get_args(Requirement)))
        _output.fail(f"There is no requirement '{requirement}'. There are {known}.", code=2)
    table = _installed()
    chosen = [
        table[op]
        for op in _patterns.choose(table.operators, pattern)
        if requirement is None or table[op].requirement == requirement
    ]
    if as_json:
        _output.print_json(Declarations.of(table.torch, chosen).to_json())
        return
    console = _output.console()
    if chosen:
        console.print(_listing(chosen, in_cpp=pattern is not None))
    console.print(f"\ntorch {table.torch}:", highlight=False)
    counts = Counter(dict.fromkeys(get_args(Requirement) if requirement is None else (requirement,), 0))
    counts.update(entry.requirement for entry in chosen)
    console.print(_output.count_table(counts))


def compare(old: str, as_json: bool) -> None:
    """Print how the installed torch differs from ``old``, a JSON file or a directory with another torch."""
    new = _installed()
    try:
        found = difference(load(old), new)
    except ValueError as error:
        _output.fail(f"--diff: {error}", code=2)
    if as_json:
        _output.print_json(found.to_json())
    else:
        print(found)


def _installed() -> Declarations:
    try:
        return installed()
    except ImportError as error:
        _output.fail(str(error), code=1)


def _listing(chosen: list[Declaration], in_cpp: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("operator", "a device", "because", "kernels in ATen", *(["a kernel in C++"] if in_cpp else [])):
        table.add_column(heading, overflow="fold")
    for entry in chosen:
        reason = REASONS[entry.reason]
        if entry.structured_delegate is not None:
            reason += f": {entry.structured_delegate}"
        table.add_row(entry.op, entry.requirement, reason, " ".join(entry.dispatch), *([entry.cpp] if in_cpp else []))
    return table
