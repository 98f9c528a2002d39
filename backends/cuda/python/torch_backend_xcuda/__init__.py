"""The device ``xcuda`` for PyTorch. ``TORCH_BACKEND=xcuda`` finds it: nothing has to be imported from here."""

from pathlib import Path

from torch_backend_xcuda import telemetry as telemetry  # functions of torch.xcuda

_LIBRARY = "libtorch_backend_xcuda.so"


def library() -> str:
    """The path of the device library.

    Raises FileNotFoundError if the package was imported from where it was not installed.
    """
    for directory in __path__:  # an editable install has two
        path = Path(directory) / "lib" / _LIBRARY
        if path.is_file():
            return str(path)
    raise FileNotFoundError(
        f"torch_backend_xcuda has no {_LIBRARY} in {', '.join(__path__)}. Reinstall it: pip install ."
    )
