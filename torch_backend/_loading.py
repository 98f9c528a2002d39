"""Opening device libraries, once each, with their options set first."""

import os
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch_backend import _native

if TYPE_CHECKING:
    from torch_backend._C import Plugin

OptionValue = str | int | float | bool
Options = Mapping[str, OptionValue]

_LIBRARY_NAME = re.compile(r"libtorch_backend_([a-z][a-z0-9_]*)\.so")

_lock = threading.RLock()
_loaded: dict[str, "Plugin"] = {}  # by real path, in the order they were loaded


def name_in(path: str | os.PathLike[str]) -> str | None:
    """The device name in a library's file name, ``libtorch_backend_<name>.so``; None if it is called otherwise."""
    match = _LIBRARY_NAME.match(os.path.basename(os.fspath(path)))
    return match.group(1) if match else None


def load(path: str | os.PathLike[str], options: Options | None = None) -> "Plugin":
    """Load the device library at ``path``, without activating it. A library is loaded once and never unloaded.

    ``options`` are what the library reads through ``host->option`` while it loads, as ``{"devices": 4}``; they replace
    the environment's ``TORCH_BACKEND_<NAME>_<KEY>``. They need a file called ``libtorch_backend_<name>.so``, because
    the name must be known before the library is opened.

    Raises RuntimeError if the file is no device library, does not work here, or was loaded before and ``options`` come
    too late. Threads: any.
    """
    return load_library(path, name_in(path), options)


def load_library(path: str | os.PathLike[str], name: str | None, options: Options | None) -> "Plugin":
    """Like :func:`load`, for a caller that knows which device to expect (None if it does not)."""
    real_path = os.path.realpath(path)
    with _lock:
        plugin = _loaded.get(real_path)
        if plugin is not None:
            if options:
                raise RuntimeError(late_options_message(plugin, options))
            return plugin
        _native.require()
        from torch_backend import _C

        if options:
            if name is None:
                raise ValueError(
                    f"options {dict(options)} cannot be given to '{path}': which device it holds is not known before "
                    "it is loaded. Call the file libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the "
                    "environment."
                )
            set_options(name, options)
        plugin = _C.load_plugin(os.fspath(path))
        if options and plugin.name != name:
            raise RuntimeError(
                f"options {dict(options)} were set for the device '{name}', but '{path}' holds the device "
                f"'{plugin.name}'. Call the file libtorch_backend_{plugin.name}.so."
            )
        _loaded[real_path] = plugin
        return plugin


def set_options(name: str, options: Options) -> None:
    """Set what the plugin ``name`` will read. Flags become "1" and "0", everything else its ``str``."""
    from torch_backend import _C

    for key, value in options.items():
        if not isinstance(value, (str, int, float)):
            raise TypeError(f"option '{key}' of '{name}' is {value!r}; an option is a string, a number or a flag.")
        _C.set_option(f"{name}.{key}", str(int(value)) if isinstance(value, bool) else str(value))


def late_options_message(plugin: "Plugin", options: Options) -> str:
    """Why options for a plugin that is loaded cannot be set, and what to do."""
    variables = " ".join(f"TORCH_BACKEND_{plugin.name}_{key}={value}".upper() for key, value in options.items())
    return (
        f"options {dict(options)} for '{plugin.name}' come too late: {plugin.path} is loaded already, and a device "
        f"library reads its options while it loads. Give them to the first load() or activate(), or set {variables} "
        "in the environment before Python starts."
    )


def loaded_plugins() -> list["Plugin"]:
    """What :func:`load` and activation have opened so far."""
    with _lock:
        return list(_loaded.values())
