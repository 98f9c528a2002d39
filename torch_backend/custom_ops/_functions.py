"""Python functions that call custom operators, with a signature and a docstring."""

from collections.abc import Callable
from typing import Any

import torch

from torch_backend.custom_ops._declaration import Operator
from torch_backend.custom_ops._signatures import signature


def make_function(module: str, overloads: list[Operator]) -> Callable[..., Any]:
    """What ``torch_backend.ops`` has for the overloads of one operator, as a member of ``module``."""
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
