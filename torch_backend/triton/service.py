"""Whether Triton serves a device: Triton gets the backend once it is imported, and PyTorch's compiler asks."""

import functools
import importlib
import sys
import warnings
from importlib import metadata
from typing import Any

from torch_backend.compat.after_import import OnImport, after_import
from torch_backend.files import location
from torch_backend.triton import declaration


def is_declared(device: str) -> bool:
    """Whether somebody has said that Triton serves ``device``, be it true or not. Imports nothing."""
    points = metadata.entry_points(group=declaration.ENTRY_POINT_GROUP, name=device)
    return device in declaration._registered or bool(points)


def on_import(device: str) -> list[OnImport]:
    """What gives Triton the backend of the active device, once somebody imports it.

    A backend that cannot be given becomes a RuntimeWarning: what imports triton may do without the device.
    """

    def give() -> None:
        if not is_declared(device):
            return
        if module := _being_imported(device):  # it has imported triton, and has not got to its classes
            after_import(module, give)
        elif (reason := _why_not_given(device)) is not None:
            warnings.warn(reason, RuntimeWarning, stacklevel=2)

    return [OnImport("triton", give)]


def _being_imported(device: str) -> str | None:
    """The module of the device's backend that is being imported now."""
    try:
        backend = declaration.declared(device)
    except Exception:  # who asks for the classes is told
        return None
    assert backend is not None
    for named in (backend.driver, backend.compiler):
        module = named.partition(":")[0] if isinstance(named, str) else named.__module__
        if getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False):
            return module
    return None


@functools.cache
def problem(device: str) -> str | None:
    """Why Triton does not serve the active device, as sentences; None if it does.

    The first call may import triton, make the driver and start the device. The driver is Triton's from then on.
    """
    if not is_declared(device):
        return (
            f"Nobody has said that Triton serves {device}. If there is a compiler, name it: "
            f"torch_backend.triton.register('{device}', TritonBackend(driver=..., compiler=...))."
        )
    reason = _why_not_given(device)
    if reason is not None:
        return reason
    driver, compiler = _classes(device)
    whose = f"The Triton driver {_name(driver)} of {device}"
    try:
        if not driver.is_active():
            return f"{whose} says that it is not active. Its is_active() has to be true where the device is available."
        runtime: Any = importlib.import_module("triton.runtime").driver
        if type(runtime.active) is not driver:
            runtime.set_active(driver())
        target = runtime.active.get_current_target()
    except Exception as error:
        return f"{whose} does not start: {type(error).__name__}: {error}"
    if not compiler.supports_target(target):
        return (
            f"The Triton compiler {_name(compiler)} of {device} refuses the target of the driver, {target}. What "
            "get_current_target() returns must be what supports_target() accepts."
        )
    return None


@functools.cache
def _why_not_given(device: str) -> str | None:
    """Why Triton cannot have the backend, as sentences; None if it has it. Imports triton."""
    try:
        triton: Any = importlib.import_module("triton")
        backends: Any = importlib.import_module("triton.backends")
    except Exception as error:  # a broken installation may raise anything
        return (
            f"{device} has a Triton backend, and triton cannot be imported: {error}. Install the version that the "
            "device's vendor names, or the one that this torch is made for."
        )
    try:
        driver, compiler = _classes(device)
    except Exception as error:
        return f"The Triton backend of {device} cannot be had: {type(error).__name__}: {error}"
    # One that Triton has found by itself is there already, under a name of its own.
    others = {name: each for name, each in backends.backends.items() if each.compiler is not compiler}
    backends.backends.clear()
    backends.backends.update({device: backends.Backend(compiler, driver), **others})
    if driver.is_active() and any(each.driver.is_active() for each in others.values()):
        triton.runtime.driver.set_active(driver())  # Triton chooses between two for nobody
    return None


@functools.cache
def _classes(device: str) -> tuple[Any, Any]:
    """The driver and the compiler. Raises what says why they are not there."""
    backend = declaration.declared(device)
    assert backend is not None
    bases = (
        importlib.import_module("triton.backends.driver").DriverBase,
        importlib.import_module("triton.backends.compiler").BaseBackend,
    )
    driver, compiler = (_class(*pair) for pair in zip((backend.driver, backend.compiler), bases, strict=True))
    return driver, compiler


def _class(named: str | type, base: type) -> type:
    value = location.resolve(named) if isinstance(named, str) else named
    if not (isinstance(value, type) and issubclass(value, base)):
        raise TypeError(f"{named!r} is no class derived from {base.__module__}.{base.__name__}")
    missing = sorted(getattr(value, "__abstractmethods__", ()))
    if missing:
        raise TypeError(f"{_name(value)} lacks {', '.join(missing)}")
    return value


def _name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"
