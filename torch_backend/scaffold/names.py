"""Which names a new device can have."""

import importlib.util
import keyword
import re
import warnings

from torch_backend.devices import registration
from torch_backend.files import installed

_MAX_CHARACTERS = 32
_PATTERN = re.compile(r"[a-z][a-z0-9_]*")


def check_name(name: str) -> None:
    """Raise ValueError, with what is wrong and what to do, unless a new device can have the name. Imports torch."""
    for problem in (_spelling, _owner):
        if reason := problem(name):
            raise ValueError(f"A device cannot be called '{name}': {reason}")


def _spelling(name: str) -> str | None:
    if not _PATTERN.fullmatch(name):
        proposal = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
        hint = f" Try '{proposal}'." if _PATTERN.fullmatch(proposal) else ""
        return f"a name is a lower-case letter, then lower-case letters, digits and underscores.{hint}"
    if keyword.iskeyword(name):
        return f"it is a word of Python's own, so nobody could write torch.{name}. Choose another name."
    if len(name) > _MAX_CHARACTERS:
        return f"it has {len(name)} characters; {_MAX_CHARACTERS} are enough."
    return None


def _owner(name: str) -> str | None:
    """Who has the name already."""
    if name in installed.REFERENCE_DEVICES:
        return "it is a reference device of torch_backend. Choose another name."
    if _is_torch_device(name):
        return "PyTorch has a device of that name. Choose another name."
    try:
        registration.check_name(name)
    except RuntimeError as error:
        return str(error)
    package = f"torch_{name}"
    if importlib.util.find_spec(package) is not None:
        return f"its package would be {package}, which is installed already. Uninstall that, or choose another name."
    return None


def _is_torch_device(name: str) -> bool:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some names are deprecated, and taken all the same
            torch.device(name)
    except RuntimeError:
        return False
    return True
