"""Python functions as the active device's kernels."""

import threading
from collections.abc import Callable
from typing import Any

from torch._library.autograd import Info, make_autograd_impl
from torch._library.utils import has_kwarg_only_tensors, is_functional_schema
from torch._ops import OpOverload

from torch_backend import _C
from torch_backend.devices.deferred import when_active
from torch_backend.operators import layers, schemas
from torch_backend.operators.out_variants import out_variant
from torch_backend.operators.removable import Removable

Function = Callable[..., Any]

_lock = threading.RLock()  # guards _kernels
_kernels: dict[str, list["Kernel"]] = {}  # by the overload they were written for, the newest last


class Kernel(Removable):
    """A Python function that serves an operator overload on the device; :func:`kernel` makes it.

    It can be called as the function. In a with statement it serves until the statement ends.
    """

    def __init__(self, function: Function, op: OpOverload) -> None:
        """For :func:`kernel`, which checks and registers it."""
        self.function = function
        self._op = op
        self._owner = layers.Owner()
        self._undo: list[Callable[[], None]] = []
        self._removed = False
        self._forms: tuple[str, ...] = ()

    @property
    def overload(self) -> str:
        """What it was written for, as "aten::add.out"."""
        return self._op._name

    @property
    def overloads(self) -> tuple[str, ...]:
        """All overloads it serves: its own, and those derived from it. Empty until a device is active."""
        return self._forms

    def register_autograd(self, backward: Function, *, setup_context: Function | None = None) -> Function:
        """Let ``backward(ctx, *grads)`` compute the gradients, instead of PyTorch's formula; returns ``backward``.

        As :func:`torch.library.register_autograd`: one gradient for each positional argument of the operator, None for
        what has none; ``setup_context(ctx, inputs, output)`` saves what backward needs, and takes
        ``keyword_only_inputs`` too if the operator has keyword-only arguments. Holds for operators that are made of
        others as well.

        Raises ValueError for an operator that writes to an argument or takes a tensor by keyword only.
        """
        schema = self._op._schema
        if not is_functional_schema(schema) or has_kwarg_only_tensors(schema):
            raise ValueError(
                f"{self.overload} cannot have a backward of its own: it writes to its arguments, returns one of them "
                "or takes a tensor by keyword only. Register backward for the functional overload."
            )
        implementation = make_autograd_impl(self._op, Info(backward, setup_context))

        def layer(keyset: layers.Keyset, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = layers.numbers_as_tensors(self._op, args, kwargs)
            return implementation(keyset, *args, **kwargs)

        self._undo.append(when_active(lambda: self._add(self._op, layers.AUTOGRAD, layer)))
        return backward

    def remove(self) -> None:
        """Let what served before serve again. Twice is once."""
        with _lock:
            if self._removed:
                return
            self._removed = True
            _kernels[self.overload].remove(self)
        for undo in reversed(self._undo):
            undo()
        self._forms = ()

    def _register(self) -> None:
        self._undo.append(when_active(self._add_all))

    def _add_all(self) -> None:
        forms = out_variant(self._op)
        kernels = {self._op: self.function} if forms is None else forms.kernels(self.function)
        for op, function in kernels.items():
            if op is self._op or not _kernels.get(op._name):  # a function written for the form goes before
                self._serve(op, function)
        self._forms = tuple(op._name for op in kernels)

    def _serve(self, op: OpOverload, function: Function) -> None:
        def layer(_keyset: layers.Keyset, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = schemas.complete(op._schema, args, kwargs)
            with self._owner.running():
                return function(*args, **kwargs)

        def autograd_layer(keyset: layers.Keyset, *args: Any, **kwargs: Any) -> Any:
            if _C.any_recorded(*args, **kwargs):
                return NotImplemented
            return layers.call_below_autograd(op, keyset, *layers.numbers_as_tensors(op, args, kwargs)[0], **kwargs)

        self._add(op, layers.DEVICE, layer)
        if schemas.is_composite(op):
            self._add(op, layers.AUTOGRAD, autograd_layer)

    def _add(self, op: OpOverload, key: str, layer: layers.LayerFunction) -> None:
        self._undo.append(layers.add(op, key, self._owner, layer))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, on any tensors."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Overload and function."""
        return f"<kernel of {self.overload}: {schemas.describe(self.function)}>"


def kernel(
    overload: str,
    *,
    replace: bool = False,
    backward: Function | None = None,
    setup_context: Function | None = None,
) -> Callable[[Function], Kernel]:
    """Decorate a Python function that serves an operator overload on the active device, before every other source::

        @torch_backend.kernel("aten::softmax.int")
        def softmax(self, dim, dtype):
            return mine(self, dim) if dtype is None else NotImplemented

    It gets all of the operator's arguments, the keyword-only ones by name, and returns what the operator returns.
    NotImplemented leaves the call to the next source, which is what served before; so does a call of the operator from
    within the function. Before a device is active the function is remembered, and registered at activation.

    For an out variant, as "aten::add.out", the function writes to its outputs, which have the right shapes and dtypes
    already, and what it returns is ignored, but for NotImplemented. The functional and the in-place operator are
    derived from it, where PyTorch has them and can tell their outputs' shapes.

    Gradients come from PyTorch's formula, or from ``backward`` and ``setup_context``, see
    :meth:`Kernel.register_autograd`. An operator that is made of others (as aten::softmax.int) has no formula: where a
    gradient is wanted and there is no ``backward``, PyTorch's composition runs instead of the function.

    Args:
        overload: namespace, name and overload, as torch writes them.
        replace: whether another function's kernel of the overload may be covered. It serves again once this one is
            removed.
        backward: computes gradients.
        setup_context: saves what ``backward`` needs.

    Raises ValueError if there is no such overload, TypeError if the function cannot take its arguments, RuntimeError if
    the overload has a Python kernel already.
    """
    op = schemas.find(overload)

    def decorate(function: Function) -> Kernel:
        schemas.check_fits(function, op._schema)
        made = Kernel(function, op)
        with _lock:
            others = _kernels.setdefault(overload, [])
            if others and not replace:
                raise RuntimeError(
                    f"{overload} has a Python kernel already: {schemas.describe(others[-1].function)}. Remove that "
                    "one first, or pass replace=True."
                )
            others.append(made)
        try:
            made._register()
            if backward is not None:
                made.register_autograd(backward, setup_context=setup_context)
        except BaseException:
            made.remove()
            raise
        return made

    if setup_context is not None and backward is None:
        raise ValueError("setup_context without backward: there is nothing to set a context up for.")
    return decorate
