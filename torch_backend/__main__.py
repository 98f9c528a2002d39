"""``python -m torch_backend`` and ``torch-backend``: paths for build systems, and the command line tool.

The paths need neither torch nor the tool's own dependencies: a device library is built without them.
"""

import os
import sys
from collections.abc import Callable, Sequence

from torch_backend.files import installed
from torch_backend.version import __version__

_ANSWERS: dict[str, Callable[[], object]] = {
    "--include-dir": installed.include_dir,
    "--cmake-dir": installed.cmake_dir,
    "--version": lambda: __version__,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (sys.argv's by default) and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) == 1 and arguments[0] in _ANSWERS:
        try:
            print(_ANSWERS[arguments[0]]())
        except FileNotFoundError as error:
            print(f"torch-backend: {error}", file=sys.stderr)
            return 1
        return 0
    # So that a device written in Python can be named "module:Class" where its file is. Last: it hides no package.
    folder = os.getcwd()
    if sys.path[0] == folder:  # of python -m
        del sys.path[0]
    if folder not in sys.path:
        sys.path.append(folder)
    from torch_backend import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
