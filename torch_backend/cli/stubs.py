"""``torch-backend stubs``: type stubs for declared custom operators."""

from pathlib import Path
from typing import Annotated

import typer

from torch_backend.cli import _output


def stubs(
    files: Annotated[list[Path], typer.Argument(help="YAML files that declare operators of one namespace.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .pyi file to write. Printed if not given.")
    ] = None,
) -> None:
    """Write type stubs for custom operators. Activates no device, and does not import the operators' kernels."""
    _output.import_torch()
    from torch_backend.custom_ops import stubs as writer

    try:
        text = writer.stubs(files)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except (ImportError, OSError, ValueError) as error:
        _output.fail(str(error), code=1)
