"""The command line tool ``torch-backend``: one module per subcommand.

It needs the extra ``torch_backend[cli]``; the package itself does not.
"""

import importlib.util
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run ``arguments`` and return the exit code: 0, 1 if the command failed, 2 if it was wrong."""
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"torch-backend needs {' and '.join(missing)}. Install it with: pip install 'torch_backend[cli]'",
            file=sys.stderr,
        )
        return 1
    from torch_backend.cli.app import app

    try:
        app(args=list(arguments), prog_name="torch-backend")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
