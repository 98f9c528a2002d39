"""The subcommands of the conformance kit, which is a distribution of its own and may be missing."""

import importlib
from typing import Any

import click

from torch_backend.cli import _output
from torch_backend.files import extras


class OfKit(click.Command):
    """A subcommand that the kit has, loaded when it is used. Without the kit it says what to install."""

    def __init__(self, name: str, module: str, short_help: str) -> None:
        """``module`` has the command under the name that ``module:name`` gives."""
        super().__init__(name, short_help=short_help)
        self._place = module

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """That of the kit's own command."""
        if missing := extras.missing("check"):
            _output.fail(
                f"The conformance kit needs {', '.join(missing)}. Install it with: pip install 'torch_backend[check]'",
                code=1,
            )
        module, _, name = self._place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command.make_context(*args, **kwargs)


check = OfKit("check", "torch_conformance.cli.check:check_library", "Test how much of PyTorch works on a device.")
compare = OfKit("compare", "torch_conformance.cli.compare:compare", "Compare two reports of check --json.")
