"""``torch-backend stubs``: type stubs for declared custom operators, and for ``torch.<name>``."""

from pathlib import Path

import click

from torch_backend.cli import _output


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--device", metavar="NAME", help="Write torch-stubs/NAME, by which type checkers know torch.NAME.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The .pyi file to write; printed if not given. With --device the folder for torch-stubs: the current one.",
)
def stubs(files: tuple[Path, ...], device: str | None, output: Path | None) -> None:
    """Write type stubs for custom operators, or for a device. Activates none, and does not import operators' kernels.

    FILES are YAML files that declare operators of one namespace.
    """
    if (device is None) == (not files):
        _output.fail("Give either FILES, which declare operators, or --device NAME.", code=2)
    try:
        if device is not None:
            click.echo(_write_device(device, output or Path()))
            return
        _output.import_torch()
        from torch_backend.custom_ops import stubs as writer

        text = writer.stubs(files)
        if output is None:
            click.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except (ImportError, OSError, ValueError) as error:
        _output.fail(str(error), code=1)


def _write_device(device: str, folder: Path) -> Path:
    if not device.isidentifier():
        raise ValueError(f"--device {device}: the name of a device is expected, as in torch.acme.")
    module = folder / "torch-stubs" / device / "__init__.pyi"
    module.parent.mkdir(parents=True, exist_ok=True)
    (folder / "torch-stubs" / "py.typed").write_text("partial\n", encoding="utf-8")  # the rest is torch's own
    module.write_text("from torch_backend.device_module import *\n", encoding="utf-8")
    return module
