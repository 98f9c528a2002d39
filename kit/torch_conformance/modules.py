"""Modules of Python that are run in a process of their own."""

import sys

_START = """\
import sys
path = {path!r}
sys.path[:] = [*(each for each in sys.path if each and each not in path), *path]  # PYTHONPATH may be another one
import runpy  # not before: the working folder was in the path
runpy.run_module({module!r}, run_name='__main__', alter_sys=True)
"""


def command(module: str, *arguments: str) -> list[str]:
    """``python -m MODULE``, but that imports what this process does: -m looks into the working folder first.

    There may be another package of the same name, as in the checkout that an installed one was built from.
    """
    return [sys.executable, "-c", _START.format(path=sys.path, module=module), *arguments]
