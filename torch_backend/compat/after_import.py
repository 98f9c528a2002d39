"""``sys.meta_path``: calling something once a module that may never be imported has been.

The compiler and parts of torch.distributed take seconds to import, and what they have to know of the device is
registered with their own functions, which only importing brings. All versions. May go once PyTorch takes such
registrations without the import.
"""

import importlib.abc
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import NamedTuple

_lock = threading.Lock()
_waiting: dict[str, list[Callable[[], None]]] = {}
_changes: dict[str, Callable[[CodeType], CodeType]] = {}


class OnImport(NamedTuple):
    """What a room has for :func:`after_import`, which registration calls."""

    module: str
    action: Callable[[], None]
    as_main: Callable[[CodeType], CodeType] | None = None


def after_import(
    module: str, action: Callable[[], None], as_main: Callable[[CodeType], CodeType] | None = None
) -> None:
    """Call ``action`` now if ``module`` was imported, otherwise right after its code has run, if that ever happens.

    Imports nothing itself. ``action`` is called by the thread that imports, which sees its exceptions.

    Args:
        module: its full name.
        action: what to do. Often the module is being imported now: libraries import torch, which brings us here.
        as_main: what ``python -m module`` runs instead of the module's code. Nothing is called after that.
    """
    with _lock:
        imported = sys.modules.get(module)
        spec = getattr(imported, "__spec__", None)
        if imported is None or (type(spec) is ModuleSpec and getattr(spec, "_initializing", False)):
            _waiting.setdefault(module, []).append(action)
            if as_main is not None:
                _changes[module] = as_main
            if spec is not None:
                spec.__class__ = _SpecInUse
            elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
            return
    action()


def _call_waiting(module: str) -> None:
    with _lock:
        actions = _waiting.pop(module, [])
    for action in actions:
        action()


class _SpecInUse(ModuleSpec):
    """The spec of a module whose import goes on: the import system says in an attribute when that ends."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if self.name in sys.modules:  # else it has failed
                _call_waiting(self.name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that somebody waits for where the finders after it do, and calls who waits."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the next finder has, with a loader that tells who waits; None for other modules."""
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, fullname)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads as ``original`` does, which the module has as its loader from then on.

    Not where ``python -m`` runs changed code: it asks this one for it, also if the module was imported before.
    """

    def __init__(self, original: importlib.abc.Loader, module: str) -> None:
        self.original = original
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.original
        if module.__spec__ is not None and self.module not in _changes:
            module.__spec__.loader = self.original
        self.original.exec_module(module)
        _call_waiting(self.module)

    def get_code(self, fullname: str) -> CodeType:
        """What ``python -m`` runs."""
        code: CodeType = self.original.get_code(fullname)  # type: ignore[attr-defined]
        return _changes[fullname](code) if fullname in _changes else code

    def __getattr__(self, name: str) -> object:
        return getattr(self.original, name)
