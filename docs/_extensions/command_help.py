"""The directive ``command-help``: what a subcommand prints with --help, at build time."""

import os
import subprocess
import sys
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_WIDTH = 84  # columns of a page's text


class CommandHelp(SphinxDirective):
    """``command-help [SUBCOMMAND]``; without one, the help of the program itself.

    ``:program:`` is the module that is run, if not torch_backend.
    """

    optional_arguments = 1
    option_spec = {"program": str}  # docutils reads it

    def run(self) -> list[nodes.Node]:
        """Run the command and show its output as it is."""
        text = help_of(*self.arguments, program=self.options.get("program", "torch_backend"))
        return [nodes.literal_block(text, text, language="text")]


def help_of(*subcommand: str, program: str = "torch_backend") -> str:
    """The help of one subcommand.

    Raises CalledProcessError if there is no such command.
    """
    environment = os.environ | {"COLUMNS": str(_WIDTH), "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", program, *subcommand, "--help"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
