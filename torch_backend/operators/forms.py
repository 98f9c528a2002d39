"""The forms of one operator that take the same arguments: functional, in-place and out.

``aten::add.Tensor``, ``aten::add_.Tensor`` and ``aten::add.out``. Their overload names follow no rule, so they are
found by their arguments.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torch_backend.operators import dispatch

_TENSOR_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})  # an out form takes these from its output


@dataclass(frozen=True)
class Forms:
    """The overloads by form; None where there is no such form."""

    functional: str | None
    inplace: str | None
    out: str | None

    def __iter__(self) -> Iterator[str]:
        """The overloads there are."""
        return (form for form in (self.functional, self.inplace, self.out) if form is not None)


def forms_of(overload: str) -> Forms:
    """The forms of the operator that ``overload`` is one of."""
    arguments = _arguments(overload)
    found: dict[str, str] = {}
    for other in _overloads(_operators(overload)):
        if _arguments(other) == arguments:
            found.setdefault(_form(other), other)
    found[_form(overload)] = overload
    return Forms(found.get("functional"), found.get("inplace"), found.get("out"))


def _operators(overload: str) -> tuple[str, str]:
    """The operator that has the functional and out forms, and the one that has the in-place form."""
    name = overload.split(".")[0]
    if name.endswith("__"):  # aten::__and__ and aten::__iand__
        base = name.replace("::__i", "::__")
        return base, base.replace("::__", "::__i")
    base = name.removesuffix("_")
    return base, f"{base}_"


def _overloads(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        for schema in torch._C._jit_get_schemas_for_operator(name):
            overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
            if torch._C._dispatch_has_kernel(overload):  # others are of TorchScript alone
                yield overload


def _form(overload: str) -> str:
    if any(argument.is_out for argument in dispatch.schema(overload).arguments):
        return "out"
    return "inplace" if overload.split(".")[0] == _operators(overload)[1] else "functional"


def _arguments(overload: str) -> tuple[tuple[str, str], ...]:
    listed = [
        (argument.name, str(argument.type)) for argument in dispatch.schema(overload).arguments if not argument.is_out
    ]
    makes_tensor = {name for name, _ in listed} >= _TENSOR_OPTIONS
    return tuple(entry for entry in listed if not (makes_tensor and entry[0] in _TENSOR_OPTIONS))
