"""Functions and classes that only one vendor's device has, in ``torch.<name>``."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from torch_backend.devices import activation, deferred

_T = TypeVar("_T", bound=Callable[..., Any])


def device_function(device: str) -> Callable[[_T], _T]:
    """Decorator: put a function or class of a vendor's own into ``torch.<device>``, once that device is active.

    In the package that the entry point in ``torch_backend.devices`` names, so that it is there as soon as the device
    is::

        @torch_backend.device_function("acme")
        def temperature(device=None):
            "Degrees Celsius of the chip."

    Nothing happens in a process with another device. Raises RuntimeError, at activation if that comes later, if
    ``torch.<device>`` has the name already: what it has is the same for every device, except for the functions of
    :mod:`torch_backend.device_module.telemetry`, which know nothing by themselves.
    """

    def decorate(function: _T) -> _T:
        deferred.when_active(lambda: _add(device, function))
        return function

    return decorate


def _add(device: str, function: Callable[..., Any]) -> None:
    plugin = activation.active()
    if plugin is None or plugin.name != device:
        return
    module, name = sys.modules["torch_backend.device_module"], function.__name__
    replaceable = name in sys.modules["torch_backend.device_module.telemetry"].__all__
    if hasattr(module, name) and getattr(module, name) is not function and not replaceable:
        raise RuntimeError(
            f"torch.{device}.{name} exists already, so {function.__module__}.{name} cannot be added to torch.{device}. "
            "Choose another name."
        )
    setattr(module, name, function)
