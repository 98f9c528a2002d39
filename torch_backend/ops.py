"""The custom operators of :func:`torch_backend.load_operators`, by namespace, as Python functions.

``torch_backend.ops.acme.rotary(x, cos, sin)`` is ``torch.ops.acme.rotary(x, cos, sin)`` with a signature and docstring,
and ``from torch_backend.ops.acme import rotary`` works.
"""

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch  # see Note [Import order] in torch_backend/devices/autoload.py

if TYPE_CHECKING:
    from torch_backend.custom_ops._declaration import Operator

    def __getattr__(name: str) -> Any: ...  # the namespaces

else:

    def __getattr__(name: str) -> object:
        known = ", ".join(sorted(_namespaces)) or "none yet"
        raise AttributeError(f"There are no custom operators of namespace '{name}'; there are: {known}.")


_lock = threading.RLock()  # guards _namespaces
_namespaces: dict[str, dict[str, "Operator"]] = {}  # by namespace, then by overload


def _add(operator: "Operator") -> Callable[[], None]:
    """Make ``operator`` callable here; returns what takes it away again."""
    with _lock:
        _namespaces.setdefault(operator.namespace, {})[operator.overload] = operator
        _refresh(operator.namespace, operator.name)

    def remove() -> None:
        with _lock:
            _namespaces[operator.namespace].pop(operator.overload, None)
            _refresh(operator.namespace, operator.name)

    return remove


def _refresh(namespace: str, name: str) -> None:
    operators = _namespaces[namespace]
    full_name = f"{__name__}.{namespace}"
    if not operators:
        del _namespaces[namespace]
        sys.modules.pop(full_name, None)
        globals().pop(namespace, None)
        return
    module = globals().get(namespace)
    if module is None:
        module = ModuleType(full_name, f"The custom operators {namespace}::*.")
        globals()[namespace] = sys.modules[full_name] = module
    overloads = [operator for operator in operators.values() if operator.name == name]
    if overloads:
        setattr(module, name, _function(full_name, overloads))
    elif hasattr(module, name):
        delattr(module, name)


def _function(module: str, overloads: list["Operator"]) -> Callable[..., Any]:
    from torch_backend.custom_ops._signatures import signature

    first = overloads[0]
    packet = getattr(getattr(torch.ops, first.namespace), first.name)
    target = getattr(packet, first.overload.partition(".")[2] or "default") if len(overloads) == 1 else packet

    def operator(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    operator.__name__ = operator.__qualname__ = first.name
    operator.__module__ = module
    operator.__doc__ = "\n\n".join([*(o.doc for o in overloads if o.doc), *(f"Schema: {o.func}" for o in overloads)])
    if len(overloads) == 1:
        operator.__signature__ = signature(first.schema)  # type: ignore[attr-defined]
    return operator
