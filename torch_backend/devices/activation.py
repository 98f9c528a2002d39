"""Making one device the process's out-of-tree device type."""

import threading
from typing import TYPE_CHECKING

from torch_backend.devices import deferred, loading, registration, selection
from torch_backend.devices.loading import Options
from torch_backend.devices.suppression import suppressed
from torch_backend.files import native

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
        with suppressed():  # what the caller asks for goes before what the environment would choose
            import torch  # noqa: F401
        plugin = _resolve(device, options)
        from torch_backend import _C

        current = _C.active_plugin()
        if current is None:
            registration.register(plugin)
            deferred.run(plugin.name)
        elif current.path != plugin.path:
            _C.activate(plugin)  # says that another device is active
        return plugin


def active() -> "Plugin | None":
    """The plugin whose device is active, None before :func:`activate`. Imports nothing."""
    if not native.is_loaded():
        return None
    from torch_backend import _C

    return _C.active_plugin()


def _resolve(device: "str | Plugin | Source", options: Options | None) -> "Plugin":
    if isinstance(device, str):
        return selection.find(device).load(options)
    native.require()
    from torch_backend import _C

    if not isinstance(device, _C.Plugin):
        return loading.load(device, options)
    if options:
        raise RuntimeError(loading.late_options_message(device, options))
    return device
