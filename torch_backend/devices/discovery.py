"""What devices can be found, and where. Nothing is loaded or imported before somebody asks for it."""

import glob
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

from torch_backend.devices import loading
from torch_backend.devices.loading import Options
from torch_backend.files import installed, location, native

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch_backend._C import Plugin
    from torch_backend.python_device.plugin import Source

ENTRY_POINT_GROUP = "torch_backend.devices"
ON_REQUEST_GROUP = "torch_backend.devices.on_request"
"""For devices that `import torch` does not activate unasked, such as emulators, and those over a driver of others."""
PATH_VARIABLE = "TORCH_BACKEND_PATH"
ENTRY_POINT_GROUPS = (ENTRY_POINT_GROUP, ON_REQUEST_GROUP)


class Origin(Enum):
    """Where a device was found. Of two with one name, the one that is earlier here is taken."""

    NAMED = "named by its place"
    LOADED = "loaded"
    PATH = PATH_VARIABLE
    ENTRY_POINT = "entry point"
    REFERENCE = "reference device"


class Candidate:
    """A device that may be there: a place to look, and after :meth:`load` the plugin or the reason why there is none.

    Attributes:
        origin: the kind of place.
        source: the place, for people: "entry point 'acme' of acme-torch 1.2".
        is_on_request: whether `import torch` activates it only where it is asked for by name.
    """

    def __init__(
        self, origin: Origin, source: str, *, name: str | None, path: str | None = None, is_on_request: bool = False
    ) -> None:
        """For :func:`discover`."""
        self.origin = origin
        self.source = source
        self.is_on_request = is_on_request
        self._name = name
        self._path = path
        self._plugin: Plugin | None = None

    @property
    def name(self) -> str | None:
        """The torch device name; None while it is not known, which needs :meth:`load`."""
        return self._plugin.name if self._plugin is not None else self._name

    @property
    def path(self) -> str | None:
        """The library's path; None while it is not known, which needs :meth:`load`."""
        return self._plugin.path if self._plugin is not None else self._path

    @property
    def error(self) -> str | None:
        """Why the device cannot be loaded, or None if it can. Loads it."""
        try:
            self.load()
        except Exception as error:
            return str(error)
        return None

    def load(self, options: Options | None = None) -> "Plugin":
        """Load the device's library, once; after a failure the next call tries again.

        Raises what went wrong: ImportError or whatever a vendor's package raises, RuntimeError for a library that
        cannot be used, and RuntimeError if ``options`` are given after the library was loaded.
        """
        if self._plugin is None:
            self._plugin = self._open(options)
        elif options:
            raise RuntimeError(loading.late_options_message(self._plugin, options))
        return self._plugin

    def _open(self, options: Options | None) -> "Plugin":
        assert self._path is not None
        return loading.load_library(self._path, self._name, options)

    def __repr__(self) -> str:
        """Its name and where it comes from."""
        return f"<Candidate {self.name or 'unknown device'}: {self.source}>"


class _LoadedCandidate(Candidate):
    """A plugin that was loaded by path."""

    def __init__(self, plugin: "Plugin") -> None:
        super().__init__(Origin.LOADED, f"loaded from {plugin.path}", name=plugin.name, path=plugin.path)
        self._plugin = plugin


class _BrokenCandidate(Candidate):
    """A place that should hold a device and does not."""

    def __init__(self, origin: Origin, source: str, path: str, reason: str) -> None:
        super().__init__(origin, source, name=location.name_in(path), path=path)
        self._reason = reason

    def _open(self, options: Options | None) -> "Plugin":
        raise RuntimeError(self._reason)


class _EntryPointCandidate(Candidate):
    """A device that an installed package offers in one of the groups of entry points."""

    _opened: ClassVar[dict[metadata.EntryPoint, "Plugin"]] = {}
    """What an earlier candidate has given: a device is not found twice, as loaded and where it comes from."""

    def __init__(self, entry_point: metadata.EntryPoint) -> None:
        package = entry_point.dist
        owner = f" of {package.name} {package.version}" if package is not None else ""
        super().__init__(
            Origin.ENTRY_POINT,
            f"entry point '{entry_point.name}'{owner}",
            name=entry_point.name,
            is_on_request=entry_point.group == ON_REQUEST_GROUP,
        )
        self._entry_point = entry_point
        opened = self._opened.get(entry_point)
        self._plugin = opened if opened in loading.loaded_plugins() else None

    def _open(self, options: Options | None) -> "Plugin":
        value = self._entry_point.load()
        if callable(value) and not _is_python_device(value):
            value = value()
        plugin = self._plugin_of(value, options)
        if plugin.name != self._entry_point.name:
            raise RuntimeError(
                f"The {self.source} gives the device '{plugin.name}' ({plugin.path}). The name of the entry point must "
                "be the device's; the package has to correct one of them."
            )
        self._opened[self._entry_point] = plugin
        return plugin

    def _plugin_of(self, value: object, options: Options | None) -> "Plugin":
        if isinstance(value, (str, os.PathLike)):
            return loading.load_library(value, self._entry_point.name, options)
        if _is_python_device(value):
            return loading.load(value, options)
        native.require()
        from torch_backend import _C

        if not isinstance(value, _C.Plugin):
            raise TypeError(
                f"The {self.source} ({self._entry_point.value}) gives a {type(value).__name__}. It must give the path "
                "of a device library, a torch_backend.PythonDevice, or a torch_backend.Plugin."
            )
        if options:
            raise RuntimeError(loading.late_options_message(value, options))
        return value


def by_place(text: str) -> Candidate | None:
    """The device written in Python that ``text`` names by its place, "module:Class"; None if it is a name.

    Raises ValueError for the path of a file.
    """
    if location.is_path(text):
        raise ValueError(f"'{text}' is a path, not the name of a device; for a file: activate(load('{text}')).")
    if not location.is_reference(text):
        return None
    return Candidate(Origin.NAMED, f"the Python device {text}", name=None, path=text)


def of_file(path: str) -> Candidate:
    """The device whose library is the file ``path``.

    Raises ValueError if there is no such file.
    """
    if not os.path.isfile(path):
        raise ValueError(f"There is no device library {path}.")
    return Candidate(Origin.NAMED, path, name=location.name_in(path), path=path)


def _is_python_device(value: object) -> "TypeGuard[Source]":
    from torch_backend.python_device import plugin

    return plugin.is_source(value)


def _on_path(environ: Mapping[str, str]) -> Iterator[Candidate]:
    for place in filter(None, environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        source = f"{PATH_VARIABLE} ({place})"
        if os.path.isfile(place):
            yield Candidate(Origin.PATH, source, name=location.name_in(place), path=place)
        elif not os.path.isdir(place):
            yield _BrokenCandidate(
                Origin.PATH,
                source,
                place,
                f"{PATH_VARIABLE} names '{place}', which does not exist. It lists device libraries, or directories "
                f"that hold libtorch_backend_<name>.so, separated by '{os.pathsep}'.",
            )
        elif libraries := sorted(glob.glob(os.path.join(glob.escape(place), "libtorch_backend_*.so"))):
            for path in libraries:
                yield Candidate(Origin.PATH, f"{PATH_VARIABLE} ({path})", name=location.name_in(path), path=path)
        else:
            yield _BrokenCandidate(
                Origin.PATH,
                source,
                place,
                f"{PATH_VARIABLE} names the directory '{place}', which holds no libtorch_backend_<name>.so.",
            )


def _in_packages() -> Iterator[Candidate]:
    offered = metadata.entry_points()  # once: it reads a file of each package
    for group in ENTRY_POINT_GROUPS:
        for entry_point in offered.select(group=group):
            yield _EntryPointCandidate(entry_point)


def _reference_devices() -> Iterator[Candidate]:
    for name in installed.REFERENCE_DEVICES:
        path = installed.reference_library(name)
        if path.is_file():
            yield Candidate(
                Origin.REFERENCE, "reference device of torch_backend", name=name, path=str(path), is_on_request=True
            )


def discover(environ: Mapping[str, str] = os.environ) -> list[Candidate]:
    """Every device that can be found, the place that takes precedence first.

    Places: libraries that were loaded by path, ``TORCH_BACKEND_PATH``, packages with an entry point in the groups
    ``torch_backend.devices`` and ``torch_backend.devices.on_request``, and the reference devices. Nothing is loaded: a
    device's library is opened when its :attr:`Candidate.error` or :meth:`Candidate.load` is asked for, so a broken one
    can be listed.
    """
    found = [*_on_path(environ), *_in_packages(), *_reference_devices()]
    opened = {location.canonical(candidate.path) for candidate in found if candidate.path is not None}
    loaded = [_LoadedCandidate(plugin) for plugin in loading.loaded_plugins() if plugin.path not in opened]
    return [*loaded, *found]
