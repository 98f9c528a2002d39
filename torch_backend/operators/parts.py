"""What an operator that is made of others on every device calls, found out on tensors without memory."""

import contextlib
import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_backend.operators import dispatch

# What arguments without a default get, until a call works: dimensions of tensors, their dtype, and integers.
_DIMS = (2, 4, 3, 1)
_DTYPES = (torch.float32, torch.int64)
_INTEGERS = (1, 0, 2)
_SIDE = 2
_NUMBER = 0.5


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators that come to the device, each once."""

    def __init__(self) -> None:
        """None so far."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first call would import the compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator."""
        self.names[func.name()] = None
        return func(*args, **(kwargs or {}))


def parts_of(overload: str) -> tuple[str, ...]:
    """The overloads that a public ``overload`` calls with some small tensors, in order; nothing runs on a device.

    Empty for one that writes to ``out``, as its functional form has the same, and if no arguments were found that it
    takes. Other arguments may lead to other operators.
    """
    name, _, suffix = overload.partition(".")
    schema = dispatch.schema(overload)
    if name.partition("::")[2].startswith("_") or any(argument.is_out for argument in schema.arguments):
        return ()  # private ones trust their callers, and may crash
    function = torch._C._get_operation_overload(name, suffix)[0]
    needed = [argument for argument in schema.arguments if not argument.has_default_value()]
    for dims, dtype, integer in itertools.product(_DIMS, _DTYPES, _INTEGERS):
        with contextlib.suppress(Exception), Calls() as calls:
            examples = {argument.name: _example(argument.type, [_SIDE] * dims, dtype, integer) for argument in needed}
            calls.names.clear()
            function(**examples)
            return tuple(calls.names)
    return ()


def _example(kind: Any, sizes: list[int], dtype: torch.dtype, integer: int) -> Any:
    """Of one argument. Raises KeyError for what nothing general can be said of."""
    if isinstance(kind, torch.OptionalType):
        return None
    if isinstance(kind, torch.ListType):
        return [_example(kind.getElementType(), sizes, dtype, integer)] * _SIDE
    return {
        "Tensor": torch.empty(sizes, dtype=dtype, device="meta"),
        "int": integer,
        "SymInt": integer,
        "number": integer,
        "float": _NUMBER,
        "bool": True,
        "Device": torch.device("meta"),
    }[str(kind)]
