"""Modules of Python that are run in a process of their own."""

import os
import sys
from pathlib import Path

SERVER = "TORCH_CONFORMANCE_FORK_SERVER"
"""The variable with the socket of the :class:`~torch_conformance.processes.ForkServer` that programs are started by."""

_START = """\
import sys
path = {path!r}
sys.path[:] = [*(each for each in sys.path if each and each not in path), *path]  # PYTHONPATH may be another one
import runpy  # not before: the working folder was in the path
runpy.run_module({module!r}, run_name='__main__', alter_sys=True)
"""


def interpreter(server: str | None = None) -> list[str]:
    """What starts ``[-u] [-P] [-W WARNING...] -c CODE [ARGUMENT...]``: ``server``, the environment's, or Python."""
    server = server or os.environ.get(SERVER)
    client = str(Path(__file__).with_name("fork_client.py"))
    return [sys.executable] if server is None else [sys.executable, "-S", "-E", client, server]


def command(module: str, *arguments: str) -> list[str]:
    """``python -m MODULE``, but that imports what this process does: -m looks into the working folder first.

    There may be another package of the same name, as in the checkout that an installed one was built from.
    """
    return [*interpreter(), "-c", _START.format(path=sys.path, module=module), *arguments]
