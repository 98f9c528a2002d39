"""Import of the native part, with errors that say what to do."""

import importlib
import sys

from torch_backend.files import installed
from torch_backend.version import __version__

REBUILD_COMMAND = "pip install --no-build-isolation --no-cache-dir --no-deps --force-reinstall torch_backend"


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def check_version(torch_version: str) -> None:
    """Raise ImportError, with both versions and the command that rebuilds, if the native part is for another torch."""
    built_for = installed.torch_built_for()
    if built_for is not None and _minor(built_for) != _minor(torch_version):
        # torch's C++ classes differ between minor versions: a library built for another one may load and crash later,
        # so it is refused before it is opened.
        raise ImportError(
            f"torch_backend {__version__} was built for torch {built_for}, but torch {torch_version} is "
            f"installed; its native part fits one minor version of torch. Rebuild it with `{REBUILD_COMMAND}`, or "
            f"install torch {_minor(built_for)}."
        )


def require() -> None:
    """Import torch and ``torch_backend._C``; ``from torch_backend import _C`` is safe afterwards.

    Raises ImportError, with both versions and the command that rebuilds, if the native part does not fit this torch.
    """
    if is_loaded():
        return
    import torch  # first: the native part is linked against torch's libraries

    check_version(torch.__version__)
    try:
        importlib.import_module("torch_backend._C")
    except ImportError as error:
        built_for = installed.torch_built_for()
        raise ImportError(
            f"The native part of torch_backend {__version__} cannot be imported: {error}. It was built for "
            f"{f'torch {built_for}' if built_for else 'an unrecorded version of torch'}; torch {torch.__version__} is "
            f"installed. Rebuild it with `{REBUILD_COMMAND}`."
        ) from error


def is_loaded() -> bool:
    """Whether something has imported the native part already. Imports nothing."""
    return "torch_backend._C" in sys.modules
