"""``torch-backend memory``: a memory snapshot as a page."""

import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from torch_backend.cli import _memory_page, _output


class _Unpickler(pickle.Unpickler):
    """Of plain data only: a snapshot may come from somebody else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a snapshot holds plain data, and this holds {module}.{name}")


@click.command(short_help="Show a memory snapshot as a page that works offline.")
@click.argument("snapshot", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="The HTML file to write: that of SNAPSHOT with .html."
)
def memory(snapshot: Path, output: Path | None) -> None:
    """Show a memory snapshot as one HTML page that loads nothing: who held memory, when, and what lies where.

    SNAPSHOT is what torch.NAME.memory._dump_snapshot wrote, also torch.cuda's. Needs no device and no torch.
    """
    output = output or snapshot.with_suffix(".html")
    try:
        with snapshot.open("rb") as file:
            content: Any = _Unpickler(file).load()
        output.write_text(_memory_page.page(content, snapshot.name), encoding="utf-8")
    except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
        _output.fail(f"{snapshot} cannot be shown: {error}", code=2)
    print(output, file=sys.stdout)
