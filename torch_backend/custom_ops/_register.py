"""Registering declared operators with torch.library."""

from collections.abc import Callable
from typing import Any

import torch

from torch_backend import autocast, ops
from torch_backend.custom_ops._declaration import PLUGIN, Function, LikeRule, Operator
from torch_backend.custom_ops._functions import make_function
from torch_backend.custom_ops._gradients import autograd_functions
from torch_backend.devices.deferred import when_active
from torch_backend.operators import rerouting, schemas
from torch_backend.operators.removable import Removable

_Library: Any = torch.library.Library  # without types in torch

_registered: list["OperatorLibrary"] = []  # torch.library forgets what nobody holds


class OperatorLibrary(Removable):
    """Custom operators that were declared together. In a with statement they exist until the statement ends."""

    def __init__(self, operators: tuple[Operator, ...]) -> None:
        """Registers ``operators``, all or none. For :func:`torch_backend.load_operators`."""
        self._operators = operators
        self._undo: list[Callable[[], None]] = []
        self._libraries: dict[str, Any] = {}
        try:
            for operator in operators:  # all of them first: a backward may be another of them
                self._define(operator)
            for operator in operators:
                self._implement(operator)
        except BaseException:
            self.remove()
            raise
        _registered.append(self)

    @property
    def overloads(self) -> tuple[str, ...]:
        """What was declared, as "acme::rotary", in order."""
        return tuple(operator.overload for operator in self._operators)

    def remove(self) -> None:
        """Forget the operators, their autocast policies and reroutes. Nothing may call them any more. Twice is once."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        for library in self._libraries.values():
            library._destroy()
        self._libraries.clear()
        if self in _registered:
            _registered.remove(self)

    def _define(self, operator: Operator) -> None:
        namespace = operator.namespace
        if namespace not in self._libraries:
            self._libraries[namespace] = _Library(namespace, "FRAGMENT")
        schema = operator.func.strip().partition("::")[2]
        self._libraries[namespace].define(schema, tags=(torch.Tag.pt2_compliant_tag,))

    def _implement(self, operator: Operator) -> None:
        library = self._libraries[operator.namespace]
        name = operator.overload
        torch.library.register_fake(name, _fake(operator), lib=library)
        if operator.backward is not None:
            backward, setup_context = autograd_functions(operator.schema, operator.backward)
            torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
        if operator.vmap is not None:
            torch.library.register_vmap(name, operator.vmap, lib=library)
        if operator.kernel == PLUGIN:
            self._undo.append(when_active(lambda: _use_plugin_kernel(name)))
        else:
            library.impl(name.partition("::")[2], _kernel(operator), "PrivateUse1")
        if operator.autocast is not None:
            self._undo.append(autocast.set_policy(name, operator.autocast).remove)
        for official in operator.reroute:
            self._undo.append(rerouting.reroute(official, to=name).remove)
        self._undo.append(ops._add(operator, make_function))

    def __repr__(self) -> str:
        """The operators' names."""
        return f"<custom operators {', '.join(self.overloads)}>"


def _kernel(operator: Operator) -> Function:
    function, schema = operator.kernel, operator.schema
    assert callable(function)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = schemas.complete(schema, args, kwargs)
        return function(*args, **kwargs)

    return kernel


def _fake(operator: Operator) -> Function:
    meta, schema = operator.meta, operator.schema

    def fake(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = schemas.complete(schema, args, kwargs)
        if meta is None:
            return None
        if not isinstance(meta, LikeRule):
            return meta(*args, **kwargs)
        values = dict(zip((argument.name for argument in schemas.positional(schema)), args, strict=True)) | kwargs
        outputs = tuple(torch.empty_like(values[name], dtype=meta.dtype) for name in meta.arguments)
        return outputs[0] if len(outputs) == 1 else outputs

    return fake


def _use_plugin_kernel(overload: str) -> None:
    from torch_backend.operators import register_plugin_kernel  # needs the native part, which a declaration does not

    register_plugin_kernel(overload)
