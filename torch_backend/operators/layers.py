"""Python kernels over what serves an operator, in layers that come and go in any order.

Note [Layers]
    The dispatcher keeps one kernel of ours per operator overload and key while it has layers. It asks the layers from
    the newest to the oldest; the first that does not return NotImplemented has served the call. After them comes
    what served before the first layer was added. Without layers nothing of ours is left in the dispatcher, so that
    the earlier kernel serves again, bit for bit.

    A function that calls the operator it serves reaches the sources below it, as ``super()`` would: its layers are
    passed over in a thread while the function runs there.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from torch_backend.files import native

native.require()
from torch_backend import _C  # noqa: E402  # after require(), which explains a failure

DEVICE = "PrivateUse1"
AUTOGRAD = "AutogradPrivateUse1"

Keyset = torch.DispatchKeySet
LayerFunction = Callable[..., Any]
"""Called with the dispatcher's key set and the call's arguments; NotImplemented leaves the call to what is below."""

_Library: Any = torch.library.Library  # without types in torch

_lock = threading.RLock()  # guards _overloads and what is in them; layers are replaced, never changed
_overloads: dict[str, "_Overload"] = {}


class Owner:
    """Whose layers are passed over while it runs."""

    def __init__(self) -> None:
        """Not running in any thread."""
        self._local = threading.local()

    @property
    def runs(self) -> bool:
        """Whether the calling thread is inside :meth:`running`."""
        return getattr(self._local, "runs", False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Pass over the owner's layers in this thread."""
        self._local.runs = True
        try:
            yield
        finally:
            self._local.runs = False


@dataclass(frozen=True)
class _Layer:
    owner: Owner
    functions: Mapping[str, LayerFunction]  # by dispatch key


class _Overload:
    """The layers of one operator overload."""

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.layers: tuple[_Layer, ...] = ()  # the newest first
        # Both at once and before anything is registered: a kernel for the device takes from a composite operator what
        # serves it for autograd.
        self._bases = {key: _computed_kernel(op, key) for key in (DEVICE, AUTOGRAD)}
        self._kernels: dict[str, _Kernel] = {}

    def change(self, owner: Owner, key: str, function: LayerFunction | None) -> None:
        """Set or take away the owner's function; a new owner's layer is the newest."""
        functions = next((dict(layer.functions) for layer in self.layers if layer.owner is owner), {})
        is_new = not functions
        functions.pop(key, None)
        if function is not None:
            functions[key] = function
        changed = _Layer(owner, functions)
        layers = (changed, *self.layers) if is_new else [changed if a.owner is owner else a for a in self.layers]
        self.layers = tuple(layer for layer in layers if layer.functions)
        self._register(key)

    def _register(self, key: str) -> None:
        is_needed = any(key in layer.functions for layer in self.layers)
        if is_needed and key not in self._kernels:
            self._kernels[key] = _Kernel(self, key, self._bases[key])
        elif not is_needed and key in self._kernels:
            self._kernels.pop(key).end()


class _Kernel:
    """What the dispatcher has of ours for one overload and key."""

    def __init__(self, overload: _Overload, key: str, base: Any) -> None:
        self._overload = overload
        self._key = key
        self._base = base
        op = overload.op
        self._library = _Library(op.namespace, "IMPL")
        with _overriding():
            self._library.impl(op._name.partition("::")[2], self, key, with_keyset=True)

    def __call__(self, keyset: Keyset, *args: Any, **kwargs: Any) -> Any:
        for layer in self._overload.layers:
            if layer.owner.runs:
                continue
            function = layer.functions.get(self._key)
            if function is None:
                break  # the layer is for the device only: the formula for gradients that was there leads to it
            result = function(keyset, *args, **kwargs)
            if result is not NotImplemented:
                return result
        op = self._overload.op
        args, kwargs = numbers_as_tensors(op, args, kwargs)
        if self._base is not None:
            return self._base.call_boxed(keyset, *args, **kwargs)
        if self._key == AUTOGRAD:
            return call_below_autograd(op, keyset, *args, **kwargs)
        raise NotImplementedError(
            f"The Python kernels of {op._name} leave this call to the next source; there is none."
        )

    def end(self) -> None:
        self._library._destroy()


@contextmanager
def _overriding() -> Iterator[None]:
    """Within, nothing is said of a kernel that replaces another one: ours are there to be replaced.

    PyTorch warns of that once per process. Its once is left to registrations that nobody has meant: while everything is
    warned of, it is not touched.
    """
    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel", UserWarning)
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)


def _computed_kernel(op: OpOverload, key: str) -> Any:
    try:
        return torch.library.get_kernel(op, key)
    except RuntimeError:
        return None  # nothing serves the operator at this key


def add(op: OpOverload, key: str, owner: Owner, function: LayerFunction) -> Callable[[], None]:
    """Let ``function`` serve ``op`` at dispatch key ``key``; returns what takes it away again.

    Every owner has a function for the device. One for autograd comes before it, and before those of older layers.
    """
    with _lock:
        overload = _overloads.get(op._name) or _overloads.setdefault(op._name, _Overload(op))
        overload.change(owner, key, function)

    def remove() -> None:
        with _lock:
            overload.change(owner, key, None)
            if not overload.layers and _overloads.get(op._name) is overload:
                del _overloads[op._name]

    return remove


def call_below_autograd(op: OpOverload, keyset: Keyset, *args: Any, **kwargs: Any) -> Any:
    """From a kernel for autograd, the operator's kernel for the device, whose work is not recorded."""
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *args, **kwargs)


def numbers_as_tensors(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the next kernel wants them: a kernel in Python gets a number where the schema has a Tensor."""
    optional_tensor = torch._C.OptionalType.ofTensor()

    def wrap(argument: torch.Argument, value: Any) -> Any:
        is_number = isinstance(value, (int, float, complex)) and argument.type.isSubtypeOf(optional_tensor)
        return _C.wrap_number(value) if is_number else value

    arguments = op._schema.arguments
    by_name = {argument.name: argument for argument in arguments}
    return (
        tuple(wrap(argument, value) for argument, value in zip(arguments, args, strict=False)),
        {name: wrap(by_name[name], value) for name, value in kwargs.items()},
    )
