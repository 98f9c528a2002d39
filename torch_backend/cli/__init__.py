"""The command line tool ``torch-backend``: one module per subcommand."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run ``arguments`` and return the exit code: 0, 1 if the command failed, 2 if it was wrong."""
    from torch_backend.cli.app import app

    try:
        app(args=list(arguments), prog_name="torch-backend")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
