"""``torch-backend codegen``: the C++ of a vendor's extension, from declarations of custom operators."""

from pathlib import Path

import click

from torch_backend.cli import _output


@click.command(short_help="Write the C++ of custom operators that are declared in YAML.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="The folder to write into: the current one if not given.",
)
def codegen(file: Path, output: Path) -> None:
    """Write the C++ that registers the custom operators of a YAML file, for an extension that needs no YAML.

    FILE.h declares the functions that are yours to write, FILE.cpp registers them. Activates no device, and imports no
    kernels.
    """
    _output.import_torch()
    try:
        from torch_backend.custom_ops import cpp

        for path in cpp.write(file, output):
            click.echo(path)
    except (ImportError, OSError, ValueError) as error:
        _output.fail(str(error), code=1)
