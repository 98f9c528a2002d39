"""The command line: which subcommands there are."""

from collections.abc import Callable
from typing import Annotated

import typer

from torch_backend.cli.check import check
from torch_backend.cli.doctor import doctor
from torch_backend.cli.explain import explain
from torch_backend.cli.info import info
from torch_backend.cli.list_devices import list_devices
from torch_backend.cli.new import new
from torch_backend.cli.ops import ops
from torch_backend.cli.stubs import stubs
from torch_backend.files import installed
from torch_backend.version import __version__

app = typer.Typer(
    name="torch-backend",
    help="Bring a new accelerator to PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _answer(answer: Callable[[], object]) -> Callable[[bool], None]:
    def callback(asked: bool) -> None:
        if asked:
            typer.echo(answer())
            raise typer.Exit

    return callback


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_answer(lambda: __version__), is_eager=True)
    ] = False,
    include_dir: Annotated[
        bool,
        typer.Option(
            "--include-dir",
            help="Print the directory that holds torch_backend/device.h.",
            callback=_answer(installed.include_dir),
            is_eager=True,
        ),
    ] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option(
            "--cmake-dir",
            help="Print the directory that holds torch_backendConfig.cmake.",
            callback=_answer(installed.cmake_dir),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Bring a new accelerator to PyTorch."""


app.command("list")(list_devices)
app.command("check")(check)
app.command("info")(info)
app.command("ops")(ops)
app.command("explain")(explain)
app.command("stubs")(stubs)
app.command("new")(new)
app.command("doctor")(doctor)
