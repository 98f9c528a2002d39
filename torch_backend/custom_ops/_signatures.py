"""Python signatures of operators."""

import collections.abc
import inspect
import keyword
from typing import Any

import torch

_TYPES: dict[str, Any] = {
    "Tensor": torch.Tensor,
    "int": int,
    "SymInt": int,
    "float": float,
    "SymFloat": float,
    "bool": bool,
    "SymBool": bool,
    "str": str,
    "number": int | float | complex,
    "Scalar": int | float | complex,
    "ScalarType": torch.dtype,
    "Device": torch.device,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
    "Generator": torch.Generator,
}


def signature(schema: torch.FunctionSchema) -> inspect.Signature:
    """How Python calls an operator of this schema. Raises ValueError if it cannot, saying why."""
    parameters = []
    for argument in schema.arguments:
        if keyword.iskeyword(argument.name):
            raise ValueError(f"the argument '{argument.name}' is not possible in Python: it is one of its keywords")
        parameters.append(
            inspect.Parameter(
                argument.name,
                inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=_default(argument),
                annotation=annotation(_type_name(argument)),
            )
        )
    results = [annotation(_type_name(result)) for result in schema.returns]
    returns = None if not results else results[0] if len(results) == 1 else tuple[tuple(results)]  # type: ignore[misc]
    return inspect.Signature(parameters, return_annotation=returns)


def annotation(type_name: str) -> Any:
    """The Python type of a schema's type as torch prints it: "Optional[List[int]]"."""
    outer, _, rest = type_name.partition("[")
    if outer == "Optional":
        return annotation(rest.removesuffix("]")) | None
    if outer == "List":
        return collections.abc.Sequence[annotation(rest.removesuffix("]"))]  # type: ignore[misc]
    return _TYPES.get(type_name, object)


def _type_name(argument: torch.Argument) -> str:
    # `real_type`, where torch has it, tells a ScalarType from an int.
    return str(getattr(argument, "real_type", argument.type))


def _default(argument: torch.Argument) -> Any:
    return argument.default_value if argument.has_default_value() else inspect.Parameter.empty
