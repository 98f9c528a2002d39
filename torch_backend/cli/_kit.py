"""The conformance kit, which is a distribution of its own and may be missing."""

from torch_backend.cli import _output
from torch_backend.files import extras


def require() -> None:
    """End the program with what to install if the kit, or what it needs, is not there."""
    if missing := extras.missing("check"):
        _output.fail(
            f"The conformance kit needs {', '.join(missing)}. Install it with: pip install 'torch_backend[check]'",
            code=1,
        )
