"""Opening device libraries, once each, with their options set first."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch_backend.files import elf, location, native

if TYPE_CHECKING:
    from torch_backend._C import Plugin
    from torch_backend.python_device.plugin import Source

OptionValue = str | int | float | bool
Options = Mapping[str, OptionValue]

_lock = threading.RLock()
_loaded: dict[str, "Plugin"] = {}  # by canonical place, in the order they were loaded
_options: dict[str, Options] = {}  # those given to each


def load(library: "str | os.PathLike[str] | Source", options: Options | None = None) -> "Plugin":
    """Load a device library, without activating it. A library is loaded once and never unloaded.

    ``library`` is the path of a shared library, a :class:`PythonDevice` (the class, or an object of it), or where such
    a class is: "module:Class".

    ``options`` are what the library reads through ``host->option`` while it loads, as ``{"devices": 4}``; they replace
    the environment's ``TORCH_BACKEND_<NAME>_<KEY>``. A file has to be called ``libtorch_backend_<name>.so`` for them,
    because the name must be known before the library is opened.

    Raises RuntimeError if this is no device library, does not work here, or was loaded before and ``options`` come too
    late; ImportError or AttributeError if a module or its class is not there. Threads: any.
    """
    if not isinstance(library, (str, os.PathLike)):
        return load_python(library, options)
    return load_library(library, location.name_in(library), options)


def load_library(path: str | os.PathLike[str], name: str | None, options: Options | None) -> "Plugin":
    """Like :func:`load` with a path or "module:Class", for a caller that knows which device to expect, or None."""
    place = os.fspath(path)
    if location.is_reference(place):
        return load_python(location.resolve(place), options, place)
    native.require()
    from torch_backend import _C

    def open_file() -> "Plugin":
        fault = elf.fault_of(place) if os.path.isfile(place) else None
        if fault is not None:
            raise RuntimeError(f"Cannot load device library: {fault}")
        return _C.load_plugin(place)

    return _load_once(os.path.realpath(path), place, name, options, open_file)


def load_python(source: "Source", options: Options | None, place: str | None = None) -> "Plugin":
    """Like :func:`load` with a :class:`PythonDevice`, which was found at ``place``."""
    from torch_backend.python_device import plugin

    if not plugin.is_source(source):
        raise TypeError(
            f"load() takes the path of a device library, a PythonDevice, or 'module:Class'; got {source!r}."
        )
    native.require()
    from torch_backend import _C

    origin = plugin.origin_of(source, place)
    return _load_once(
        origin,
        origin,
        getattr(source, "name", None),
        options,
        lambda: _C.load_plugin_entry(plugin.address_of(plugin.entry_of(source)), origin),
    )


def _load_once(
    key: str, place: str, name: str | None, options: Options | None, open_it: "Callable[[], Plugin]"
) -> "Plugin":
    with _lock:
        plugin = _loaded.get(key)
        if plugin is not None:
            if options:
                raise RuntimeError(late_options_message(plugin, options))
            return plugin
        if options:
            if name is None:
                raise ValueError(
                    f"options {dict(options)} cannot be given to '{place}': which device it holds is not known before "
                    "it is loaded. Call the file libtorch_backend_<name>.so, or set TORCH_BACKEND_<NAME>_<KEY> in the "
                    "environment."
                )
            set_options(name, options)
        plugin = open_it()
        if options and plugin.name != name:
            raise RuntimeError(
                f"options {dict(options)} were set for the device '{name}', but '{place}' holds the device "
                f"'{plugin.name}'. Call the file libtorch_backend_{plugin.name}.so."
            )
        _loaded[key] = plugin
        _options[plugin.path] = dict(options or {})
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


def options_of(plugin: "Plugin") -> Options:
    """What was given to a plugin when it was loaded; what it found in the environment is not in it."""
    with _lock:
        return _options.get(plugin.path, {})


def loaded_plugins() -> list["Plugin"]:
    """What :func:`load` and activation have opened so far."""
    with _lock:
        return list(_loaded.values())
