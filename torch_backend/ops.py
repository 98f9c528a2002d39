"""The custom operators of :func:`torch_backend.load_operators`, by namespace, as Python functions.

``torch_backend.ops.acme.rotary(x, cos, sin)`` is ``torch.ops.acme.rotary(x, cos, sin)`` with a signature and docstring,
and ``from torch_backend.ops.acme import rotary`` works.
"""

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_backend.custom_ops._declaration import Operator

    MakeFunction = Callable[[str, list[Operator]], Callable[..., Any]]  # of a module's name and an operator's overloads

    def __getattr__(name: str) -> Any: ...  # the namespaces

else:

    def __getattr__(name: str) -> object:
        known = ", ".join(sorted(_namespaces)) or "none yet"
        raise AttributeError(f"There are no custom operators of namespace '{name}'; there are: {known}.")


_lock = threading.RLock()  # guards _namespaces
_namespaces: dict[str, dict[str, "Operator"]] = {}  # by namespace, then by overload


def _add(operator: "Operator", make: "MakeFunction") -> Callable[[], None]:
    """Make ``operator`` callable here, as what ``make`` makes of its overloads; returns what takes it away again."""
    with _lock:
        _namespaces.setdefault(operator.namespace, {})[operator.overload] = operator
        _refresh(operator.namespace, operator.name, make)

    def remove() -> None:
        with _lock:
            _namespaces[operator.namespace].pop(operator.overload, None)
            _refresh(operator.namespace, operator.name, make)

    return remove


def _refresh(namespace: str, name: str, make: "MakeFunction") -> None:
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
        setattr(module, name, make(full_name, overloads))
    elif hasattr(module, name):
        delattr(module, name)
