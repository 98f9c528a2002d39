"""``torch-backend new``: a plugin project that builds and passes before its first edit."""

import importlib.util
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torch_backend.cli import _output

if TYPE_CHECKING:
    from torch_backend.scaffold import Language


def new(
    name: Annotated[str, typer.Argument(help="The torch device name: torch.device('<name>'), torch.<name>.")],
    lang: Annotated[str, typer.Option("--lang", help="What the device is written in: c, c++ or python.")] = "c",
    kernels: Annotated[bool, typer.Option("--kernels", help="Add two kernels of the device's own.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where to write it, a directory that is not there yet: NAME.")
    ] = None,
) -> None:
    """Write a plugin project for a new device: its library, build, Python package, conformance test and CI.

    It works as it is, with the host's memory, and is yours to change.
    """
    if importlib.util.find_spec("jinja2") is None:
        _output.fail("New projects need jinja2. Install it with: pip install 'torch_backend[check]'", code=1)
    _output.import_torch()
    from torch_backend.scaffold import Project, check_name

    place = directory if directory is not None else Path(name)
    try:
        check_name(name)
        project = Project(name, _language(lang), kernels)
        files = project.write(place)
    except (ValueError, FileExistsError) as error:
        _output.fail(str(error), code=2)
    except OSError as error:
        _output.fail(f"The project could not be written to '{place}': {error}", code=1)
    for file in files:
        typer.echo(file)
    install = "pip install --no-build-isolation --no-deps ."
    typer.echo(f"\nNext: cd {shlex.quote(str(place))} && {install} && torch-backend doctor {name}")


def _language(text: str) -> "Language":
    from torch_backend.scaffold import Language

    try:
        return Language(text)
    except ValueError:
        raise ValueError(f"--lang {text}: a device is written in c, c++ or python.") from None
