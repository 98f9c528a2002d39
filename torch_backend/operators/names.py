"""Finding operators by the names that people use."""

import difflib
import functools
from typing import TypeAlias

import torch

Operator: TypeAlias = str | torch._ops.OpOverload | torch._ops.OpOverloadPacket


def known() -> frozenset[str]:
    """Every operator ("aten::sort") and overload ("aten::sort.stable") that the dispatcher knows."""
    # Libraries register operators at any time, so the names are asked for again when there are more.
    return _known(len(torch._C._dispatch_get_all_op_names()))


@functools.cache
def _known(count: int) -> frozenset[str]:
    overloads: list[str] = torch._C._dispatch_get_all_op_names()
    return frozenset(overloads) | {name.split(".")[0] for name in overloads}


def suggestion(name: str) -> str:
    """A question that ends an error about an unknown operator: " Did you mean ...?", or nothing."""
    full, names = _with_namespace(name), known()
    close = [full] if full in names else difflib.get_close_matches(full, sorted(names), n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def overloads_of(op: Operator) -> tuple[str, ...]:
    """The overloads that ``op`` names, sorted.

    Args:
        op: an overload ("aten::softmax.int", ``torch.ops.aten.softmax.int``), or an operator for all its overloads
            ("aten::softmax", ``torch.ops.aten.softmax``). Namespace aten may be left out. Where the overload has no
            name, "default" names it alone: "aten::relu.default".

    Raises ValueError for an operator that does not exist, with the names that are close.
    """
    if isinstance(op, torch._ops.OpOverload):
        return (str(op.name()),)  # type: ignore[no-untyped-call]
    name = op._qualified_op_name if isinstance(op, torch._ops.OpOverloadPacket) else op
    if not isinstance(name, str):
        raise TypeError(f"op is {op!r}; expected an operator's name or an operator of torch.ops.")
    full = _with_namespace(name.strip())
    overloads = _overloads(full)
    if not overloads:
        raise ValueError(f"There is no operator '{name}'.{suggestion(name)}")
    return overloads


def _overloads(full: str) -> tuple[str, ...]:
    registered: list[str] = torch._C._dispatch_get_all_op_names()
    if full.endswith(".default") and full not in registered:
        full = full.removesuffix(".default")
        return (full,) if full in registered else ()
    if "." in full:
        return (full,) if full in registered else ()
    return tuple(sorted(overload for overload in registered if overload.split(".")[0] == full))


def _with_namespace(name: str) -> str:
    if name.startswith("torch.ops."):
        name = name.removeprefix("torch.ops.").replace(".", "::", 1)
    return name if "::" in name else f"aten::{name}"
