"""How users say where a device library is: the path of a file, or ``module:Class`` for one written in Python."""

import difflib
import importlib
import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_backend.python_device.plugin import Source

_LIBRARY_NAME = re.compile(r"libtorch_backend_([a-z][a-z0-9_]*)\.so")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_reference(text: str) -> bool:
    """Whether this is ``module:Class``."""
    return _REFERENCE.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Whether this is the path of a file. A file in this folder is "./file.so"."""
    return os.sep in text


def is_place(text: str) -> bool:
    """Whether this says where a device is, and is not its name."""
    return is_path(text) or is_reference(text)


def absolute(place: str) -> str:
    """The place as other processes, in other folders, find it. A name stays a name."""
    return os.path.abspath(place) if is_path(place) else place


def canonical(place: str) -> str:
    """The one spelling of a place."""
    return place if is_reference(place) else os.path.realpath(place)


def exists(place: str) -> bool:
    """Whether there is such a file; of a module only importing it tells, and this does not."""
    return is_reference(place) or os.path.isfile(place)


def folder(place: str) -> Path | None:
    """Where the files beside a device library are; None for a module that has no file. Imports its parents."""
    if not is_reference(place):
        return Path(place).parent
    try:
        spec = importlib.util.find_spec(place.partition(":")[0])
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.has_location and spec.origin else None


def resolve(reference: str) -> "Source":
    """Import what ``module:Class`` names. Raises ImportError or AttributeError if it is not there."""
    module, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it needs is not
        raise ImportError(
            f"There is no module '{module}' for '{reference}'. Is its folder in PYTHONPATH, or its package installed?"
        ) from error
    except AttributeError as error:
        similar = difflib.get_close_matches(error.name or "", dir(error.obj), n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise AttributeError(f"'{reference}': {error}.{hint}") from error
    source: Source = found
    return source


def name_in(place: str | os.PathLike[str]) -> str | None:
    """The device name that a place tells: in the file name ``libtorch_backend_<name>.so``, or of the class.

    None if the file is called otherwise, or the class cannot be imported.
    """
    text = os.fspath(place)
    if is_reference(text):
        try:
            name = getattr(resolve(text), "name", None)
        except Exception:  # whoever loads it says what is wrong
            return None
        return name if isinstance(name, str) else None
    match = _LIBRARY_NAME.match(os.path.basename(text))
    return match.group(1) if match else None
