"""Operators that compute nothing."""

from functools import cache

import torch


@cache
def only_prepares(op: str) -> bool:
    """Whether the operator makes a view, or memory for a result.

    ``op``: an overload, "aten::view"; or the name that overloads share, which then all have to.
    """
    base = op.removeprefix("aten::").partition(".")[0]
    if base.startswith(("empty", "new_empty", "resize")):
        return True
    overloads = _overloads(op)
    return bool(overloads) and all(map(_makes_a_view, overloads))


def _overloads(op: str) -> list[tuple[str, str]]:
    name, _, suffix = op.partition(".")
    if suffix:
        return [(name, suffix)]
    schemas = [schema for schema in torch._C._jit_get_schemas_for_operator(name) if "out" not in schema.overload_name]
    return [(name, schema.overload_name) for schema in schemas]


def _makes_a_view(overload: tuple[str, str]) -> bool:
    schema = torch._C._get_schema(*overload)
    if any(found.alias_info is not None and not found.alias_info.is_write for found in schema.returns):
        return True
    return torch.Tag.inplace_view in torch._C._get_operation_overload(*overload)[2]
