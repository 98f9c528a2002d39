"""Where operators' arguments are in what their kernels are called with, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchgen.api import cpp
from torchgen.model import NativeFunction


@dataclass(frozen=True)
class Overload:
    """An overload of the installed torch; see csrc/ops/compiled/engine/Overloads.h."""

    name: str  # "index_reduce.out"
    identifier: str  # "index_reduce_out", as in at::_ops
    arguments: tuple[str, ...]  # the schema's, and what it returns that is none of them


def overloads(functions: Iterable[NativeFunction]) -> list[Overload]:
    """All of them, in the order of their names."""
    return sorted((_overload(function) for function in functions), key=lambda overload: overload.name)


def _overload(function: NativeFunction) -> Overload:
    schema = function.func
    identifier = schema.name.unambiguous_name()
    names = [argument.name for argument in schema.arguments.flat_all]
    for name, returned in zip(cpp.return_names(function), schema.returns, strict=True):
        if returned.annotation is None:
            names.append(name)
    # C++ has no member that is called like its class.
    return Overload(str(schema.name), identifier, tuple(name + "_" * (name == identifier) for name in names))
