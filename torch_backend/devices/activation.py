"""Making one device the process's out-of-tree device type."""

import sys
import threading
from typing import TYPE_CHECKING

from torch_backend.devices import deferred, loading, registration, selection
from torch_backend.devices.loading import Options
from torch_backend.devices.suppression import suppressed
from torch_backend.files import location, native

if TYPE_CHECKING:
    from torch_backend._C import Plugin
    from torch_backend.python_device.plugin import Source

_lock = threading.RLock()


def activate(device: "str | Plugin | Source", options: Options | None = None) -> "Plugin":
    """Make ``device`` the device that PyTorch calls ``<name>``: ``torch.<name>``, ``tensor.to("<name>")``.

    Once per process, because PyTorch has one slot for out-of-tree devices; the active device again is a no-op. Does not
    start the driver: its first use does. On a synchronous device, backward passes of the calling thread run in that
    thread from then on, as on CPU (``torch.autograd.set_multithreading_enabled``).

    Args:
        device: a name that :func:`torch_backend.discover` lists, what :func:`torch_backend.load` returned, or a
            :class:`torch_backend.PythonDevice`: the class, an object of it, or "module:Class".
        options: settings that the plugin reads while it loads, as ``{"devices": 4}``; see :func:`torch_backend.load`.

    Returns the active plugin. Threads: any; the first call decides.

    Raises ValueError if there is no such device, and RuntimeError if its library does not work, finds no devices, or
    was loaded before and ``options`` come too late, if another device is active, or if its name is one that torch uses.
    Whatever is checked is checked before anything is registered.
    """
    with _lock:
        _import_torch()
        plugin = _resolve(device, options)
        current = active()
        if current is not None and current.path == plugin.path:
            return current
        if current is None:
            _check_usable(plugin)
        from torch_backend import _C

        _C.activate(plugin)  # says so if another device is active
        _finish(plugin)
        deferred.run(plugin.name)
        return plugin


def active() -> "Plugin | None":
    """The plugin whose device is active, None before :func:`activate`. Imports nothing."""
    if not native.is_loaded():
        return None
    from torch_backend import _C

    return _C.active_plugin()


def _import_torch() -> None:
    if "torch" not in sys.modules:
        with suppressed():  # what the caller asks for goes before what the environment would choose
            import torch  # noqa: F401
    native.require()


def _resolve(device: "str | Plugin | Source", options: Options | None) -> "Plugin":
    if isinstance(device, str):
        if location.is_path(device):
            raise ValueError(f"activate() takes a device name or a plugin; for a file: activate(load('{device}')).")
        return selection.find(device).load(options)
    from torch_backend import _C

    if not isinstance(device, _C.Plugin):
        return loading.load(device, options)
    if options:
        raise RuntimeError(loading.late_options_message(device, options))
    return device


def _check_usable(plugin: "Plugin") -> None:
    if plugin.device_count() == 0:
        raise RuntimeError(
            f"'{plugin.name}' ({plugin.path}) finds no devices, so there is nothing to activate. Check that the "
            "hardware is present and its driver is loaded."
        )
    registration.check_slot(plugin.name)
    registration.check_name(plugin.name)
    import torch_backend.device_module  # noqa: F401  # if this fails nothing is registered yet


def _finish(plugin: "Plugin") -> None:
    try:
        registration.register(plugin)
    except Exception as error:
        raise RuntimeError(
            f"PyTorch knows the device '{plugin.name}', but its Python side could not be completed: {error}. "
            "This process cannot use the device; start a new one."
        ) from error
