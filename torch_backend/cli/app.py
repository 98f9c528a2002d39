"""The command line: which subcommands there are."""

from collections.abc import Callable

import click

from torch_backend.cli._kit import check, compare
from torch_backend.cli.codegen import codegen
from torch_backend.cli.compile_kernels import compile_kernels
from torch_backend.cli.doctor import doctor
from torch_backend.cli.explain import explain
from torch_backend.cli.info import info
from torch_backend.cli.list_devices import list_devices
from torch_backend.cli.memory import memory
from torch_backend.cli.new import new
from torch_backend.cli.ops import ops
from torch_backend.cli.stubs import stubs
from torch_backend.files import installed
from torch_backend.version import __version__


def _print(answer: Callable[[], object]) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked:
            click.echo(answer())
            context.exit()

    return callback


def _question(
    option: str, help: str, answer: Callable[[], object]
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    return click.option(option, is_flag=True, is_eager=True, expose_value=False, callback=_print(answer), help=help)


@click.group(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@_question("--version", "Print the version.", lambda: __version__)
@_question("--include-dir", "Print the directory that holds torch_backend/device.h.", installed.include_dir)
@_question("--cmake-dir", "Print the directory that holds torch_backendConfig.cmake.", installed.cmake_dir)
def app() -> None:
    """Bring a new accelerator to PyTorch."""


for command in (list_devices, check, compare, info, ops, explain, memory, stubs, codegen, compile_kernels, new, doctor):
    app.add_command(command)
