"""Official operators that run as the device's own custom operators.

A custom operator brings its kernel and its backward; a reroute lets models that call PyTorch's operator use it on the
device. ``TORCH_BACKEND_REROUTE=0`` in the environment switches all reroutes off, to compare with what PyTorch does.
"""

import os
import threading
from typing import Any

import torch
from torch._ops import OpOverload

from torch_backend import _C
from torch_backend.devices.deferred import when_active
from torch_backend.operators import layers, schemas
from torch_backend.operators.removable import Removable

SWITCH = "TORCH_BACKEND_REROUTE"

_lock = threading.RLock()  # guards _routes
_routes: list["Reroute"] = []


class Reroute(Removable):
    """One way from an official operator to a custom one; :func:`reroute` makes it.

    In a with statement it is in force until the statement ends, and forgotten then.
    """

    def __init__(self, op: OpOverload, target: OpOverload) -> None:
        """For :func:`reroute`, which checks that the operators fit."""
        self._op = op
        self._target = target
        self._owner = layers.Owner()
        self._wanted = False
        self._undo: list[Any] = []
        self._call_off: Any = None

    @property
    def overload(self) -> str:
        """The official operator."""
        return self._op._name

    @property
    def to(self) -> str:
        """The custom operator."""
        return self._target._name

    @property
    def enabled(self) -> bool:
        """Whether calls take this way: it was not disabled, a device is active, and TORCH_BACKEND_REROUTE is not 0."""
        return bool(self._undo)

    def enable(self) -> None:
        """Take this way from now on. Has no effect while TORCH_BACKEND_REROUTE=0 is in the environment."""
        with _lock:
            if self._wanted:
                return
            self._wanted = True
            if self not in _routes:
                _routes.append(self)
        self._call_off = when_active(self._add)

    def disable(self) -> None:
        """Let what served before serve again, bit for bit."""
        with _lock:
            self._wanted = False
            undo, self._undo = self._undo, []
        if self._call_off is not None:
            self._call_off()
        for action in undo:
            action()

    def remove(self) -> None:
        """Disable it, and list it no more."""
        self.disable()
        with _lock:
            if self in _routes:
                _routes.remove(self)

    def _add(self) -> None:
        if os.environ.get(SWITCH) == "0":
            return
        with _lock:
            self._undo.append(layers.add(self._op, layers.DEVICE, self._owner, self._serve))
            if _has_backward(self._target) or schemas.is_composite(self._op):
                self._undo.append(layers.add(self._op, layers.AUTOGRAD, self._owner, self._serve_with_gradients))

    def _serve(self, _keyset: layers.Keyset, *args: Any, **kwargs: Any) -> Any:
        with self._owner.running():
            return self._target(*args, **kwargs)

    def _serve_with_gradients(self, keyset: layers.Keyset, *args: Any, **kwargs: Any) -> Any:
        wants_gradient = _C.any_recorded(*args, **kwargs)
        if wants_gradient and not _has_backward(self._target):
            return NotImplemented  # PyTorch's composition has gradients, the custom operator has none
        return self._serve(keyset, *args, **kwargs)

    def __repr__(self) -> str:
        """From, to, and whether it is in force."""
        return f"<reroute {self.overload} -> {self.to}, {'enabled' if self.enabled else 'disabled'}>"


def reroute(overload: str, to: str) -> Reroute:
    """Run the official operator ``overload`` ("aten::gelu") as the custom operator ``to`` on the device.

    Gradients are those of the custom operator. If it has no backward, PyTorch's formula for the official operator is
    used, and an operator that is made of others and has no formula goes PyTorch's way where a gradient is wanted.
    The custom operator's kernel may call the official one: that call goes where it went before.

    Before a device is active the reroute is remembered. Of several for one operator, the latest enabled one is taken.

    Returns the reroute, enabled; it can be disabled, enabled again and removed.

    Raises ValueError if one of the operators does not exist, if their arguments or results differ in number, type or
    default, or if they write to their arguments.
    """
    op, target = schemas.find(overload), schemas.find(to)
    _check_compatible(op, target)
    route = Reroute(op, target)
    route.enable()
    return route


def reroutes() -> tuple[Reroute, ...]:
    """All reroutes, enabled or not, the oldest first."""
    with _lock:
        return tuple(_routes)


def _has_backward(op: OpOverload) -> bool:
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(op._name, key)
        for key in ("Autograd", layers.AUTOGRAD, "CompositeImplicitAutograd")
    )


def _check_compatible(op: OpOverload, target: OpOverload) -> None:
    faults = []
    if op is target:
        faults.append("they are the same operator")
    for schema in (op._schema, target._schema):
        if schemas.is_mutating(schema):
            faults.append(f"{schema.name} writes to its arguments")
    faults += schemas.differences(op._schema, target._schema)
    if faults:
        raise ValueError(f"{op._name} cannot be rerouted to {target._name}: {'; '.join(faults)}.")
