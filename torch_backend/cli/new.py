"""``torch-backend new``: a plugin project that builds and passes before its first edit."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torch_backend.cli import _output

if TYPE_CHECKING:
    from torch_backend.scaffold import Kind, Language


@click.command(short_help="Write a plugin project for a new device.")
@click.argument("name")
@click.option("--lang", help="What the device is written in: c, c++ or python.  [default: c; of handles: c++]")
@click.option(
    "--kind",
    default="plain",
    show_default=True,
    help="What its driver is like: plain, or handles: memory without addresses, and queues.",
)
@click.option("--kernels", is_flag=True, help="Add two kernels of the device's own.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write it, a directory that is not there yet: NAME.",
)
@_output.json_option
def new(name: str, lang: str | None, kind: str, kernels: bool, directory: Path | None, as_json: bool) -> None:
    """Write a plugin project for a new device: its library, build, Python package, conformance test and CI.

    NAME is the torch device name: torch.device('NAME'), torch.NAME. The project works as it is, with the host's memory,
    and is yours to change. JSON: {"files": [path, ...]}.
    """
    _output.import_torch()
    from torch_backend.scaffold import Project, check_name

    place = directory if directory is not None else Path(name)
    try:
        check_name(name)
        of = _kind(kind)
        project = Project(name, _language(lang or ("c++" if kind == "handles" else "c")), kernels, kind=of)
        files = project.write(place)
    except (ValueError, FileExistsError) as error:
        _output.fail(str(error), code=2)
    except OSError as error:
        _output.fail(f"The project could not be written to '{place}': {error}", code=1)
    if as_json:
        _output.print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(file)
    install = "pip install --no-build-isolation --no-deps ."
    click.echo(f"\nNext: cd {shlex.quote(str(place))} && {install} && torch-backend doctor {name}")


def _kind(text: str) -> "Kind":
    from torch_backend.scaffold import Kind

    try:
        return Kind(text)
    except ValueError:
        raise ValueError(f"--kind {text}: a driver is plain, or one of handles.") from None


def _language(text: str) -> "Language":
    from torch_backend.scaffold import Language

    try:
        return Language(text)
    except ValueError:
        raise ValueError(f"--lang {text}: a device is written in c, c++ or python.") from None
