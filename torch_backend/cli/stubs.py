"""``torch-backend stubs``: type stubs for declared custom operators."""

from pathlib import Path

import click

from torch_backend.cli import _output


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The .pyi file to write; printed if not given.")
def stubs(files: tuple[Path, ...], output: Path | None) -> None:
    """Write type stubs for custom operators. Activates no device, and does not import operators' kernels.

    FILES are YAML files that declare operators of one namespace.
    """
    try:
        _output.import_torch()
        from torch_backend.custom_ops import stubs as writer

        text = writer.stubs(files)
        if output is None:
            click.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except (ImportError, OSError, ValueError) as error:
        _output.fail(str(error), code=1)
