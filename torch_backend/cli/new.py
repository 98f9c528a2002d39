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
@click.option(
    "--kind",
    default="host",
    show_default=True,
    help="What there is of it: host, the host's heap, to begin from nothing; cuda-like, an SDK with CUDA's calls; "
    "handles, a driver with queues and memory without addresses; python, a class in Python.",
)
@click.option("--lang", help="What the library is written in: c or c++.  [default: c; of an SDK or driver: c++]")
@click.option("--kernels", is_flag=True, help="Add two kernels of the device's own.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write it, a directory that is not there yet: NAME.",
)
@_output.json_option
def new(name: str, kind: str, lang: str | None, kernels: bool, directory: Path | None, as_json: bool) -> None:
    """Write a plugin project for a new device: its library, build, Python package, conformance test and CI.

    NAME is the torch device name: torch.device('NAME'), torch.NAME. The project works as it is, with the host's memory,
    and is yours to change. JSON: {"files": [path, ...]}.
    """
    _output.import_torch()
    from torch_backend.scaffold import Project, check_name

    place = directory if directory is not None else Path(name)
    try:
        check_name(name)
        files = Project(name, _kind(kind), _language(lang), kernels).write(place)
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
        hint = " What was plain is host." if text == "plain" else ""
        raise ValueError(f"--kind {text}: it is host, handles, cuda-like or python.{hint}") from None


def _language(text: str | None) -> "Language | None":
    from torch_backend.scaffold import Language

    try:
        return Language(text) if text else None
    except ValueError:
        hint = " For a device in Python type --kind python." if text == "python" else ""
        raise ValueError(f"--lang {text}: a device library is written in c or c++.{hint}") from None
