"""``torch-conformance``: which subcommands there are."""

import click

from torch_conformance.cli.check import check
from torch_conformance.cli.compare import compare
from torch_conformance.cli.list_tests import list_tests
from torch_conformance.cli.measure import measure


@click.group(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="torch-conformance", message="%(version)s")
def app() -> None:
    """Find out how much of PyTorch works on a device, and what has changed."""


for command in (check, list_tests, measure, compare):
    app.add_command(command)
