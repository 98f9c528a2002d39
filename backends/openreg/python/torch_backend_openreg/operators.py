"""Which operators the device offers a kernel for, from what torch knows of them."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import torch

# Their results are as ATen lays them out, and refused where the core has foreseen another layout.
_OVERRIDEABLE = ("aten::convolution_overrideable", "aten::convolution_backward_overrideable")
# It updates the running statistics, which its schema does not say.
WRITES_UNSAID = ("aten::native_batch_norm",)
_FORESEES = ("Meta", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_CARRIED = (
    *("Tensor", "int", "SymInt", "float", "bool", "number", "Scalar", "ScalarType"),
    *("Device", "str", "complex"),
)
_NOT_ON_BYTES = (torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded)
# Their results are not laid out as PyTorch foresees, or not contiguous as memory of KernelContext.alloc_output is, and
# some of ATen counts on how they are.
_OTHER_STRIDES = ("aten::nonzero", "aten::_fft_r2c", "aten::_fft_r2c.out", "aten::linalg_eig", "aten::linalg_eig.out")
_INDICES = ("index", "indices")
_RETURNED = ("Tensor", "List[Tensor]")


class Way(Enum):
    """How an operator is computed."""

    WRITES = "writes tensors that it is given"
    FILLS = "returns new tensors, whose shapes PyTorch knows before: there is memory for them"
    RETURNS = "returns new tensors, whose shapes it decides"


def overload(op: str) -> Any:
    """The operator called "aten::add.out" as torch.ops has it. Raises AttributeError if this torch has none."""
    namespace, _, rest = op.partition("::")
    name, _, form = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), form or "default")


def way_of(op: str) -> Way | None:
    """How to compute an operator; None if it is not for this device to compute.

    PyTorch's own with a CPU kernel are: PyTorch's composites come down to them. Of the forms of one operator the
    out= form is preferred, then the functional one, because the core derives the others from it. Left out are views
    and what changes the shape of a tensor, because the daemon knows bytes and not tensors, and what draws random
    numbers, because their generator is not there.
    """
    if not op.startswith("aten::") or not torch._C._dispatch_has_kernel(op):
        return None
    if op in _OVERRIDEABLE:
        return Way.FILLS
    if not _has_cpu_kernel(op):
        return None
    function = overload(op)
    if op in _OTHER_STRIDES or any(tag in function.tags for tag in _NOT_ON_BYTES):
        return None
    arguments, returns = function._schema.arguments, function._schema.returns
    if not all(_is_carried(str(a.type)) for a in arguments) or not all(str(r.type) in _RETURNED for r in returns):
        return None
    if any(a.alias_info is not None and not a.alias_info.is_write for a in (*arguments, *returns)):
        return None
    is_dynamic = torch.Tag.dynamic_output_shape in function.tags
    if any(a.is_out for a in arguments):
        return Way.WRITES if _has_functional_form(op) and not is_dynamic else None
    is_new = [r.alias_info is None for r in returns]
    if any(a.alias_info is not None for a in arguments) and not any(is_new):
        return None if _inplace_has_better_form(op) else Way.WRITES
    writes = op in WRITES_UNSAID or any(a.alias_info is not None for a in arguments)
    if not any("Tensor" in str(a.type) for a in arguments) or not all(is_new):
        return None
    if not is_dynamic and not writes:
        if _out_form(op) is not None:
            return None
        if any(torch._C._dispatch_has_kernel_for_dispatch_key(op, key) for key in _FORESEES):
            return Way.FILLS
    return Way.RETURNS if all(str(r.type) == "Tensor" for r in returns) else None


def may_refuse(op: str) -> bool:
    """Whether it takes the call itself to know if it is one for the operator's next source: so it is waited for.

    Indices may be out of range, which PyTorch's own kernel then says in its words.
    """
    arguments = overload(op)._schema.arguments
    return op in _OVERRIDEABLE or any(a.name in _INDICES and "Tensor" in str(a.type) for a in arguments)


def _has_cpu_kernel(op: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, "CPU"))


def _inputs(op: str) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in overload(op)._schema.arguments if not a.is_out]


def _siblings(op: str, name: str) -> Iterator[str]:
    """The overloads of operator ``name`` that take the same inputs as ``op``."""
    namespace, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    for form in packet.overloads() if packet is not None else ():
        other = name if form == "default" else f"{name}.{form}"
        if other != op and _inputs(other) == _inputs(op):
            yield other


def _out_form(op: str) -> str | None:
    """The out= form with a CPU kernel."""
    name = op.partition(".")[0]
    return next((o for o in _siblings(op, name) if _has_cpu_kernel(o) and len(_inputs(o)) < _count(o)), None)


def _has_functional_form(op: str) -> bool:
    """Whether the results of an out= form can be foreseen from another form."""
    name = op.partition(".")[0]
    return any("Tensor" in kind for _, kind in _inputs(op)) and any(
        len(_inputs(o)) == _count(o) for o in _siblings(op, name)
    )


def _inplace_has_better_form(op: str) -> bool:
    """Whether one that writes its inputs, "aten::add_.Tensor", is derived from another that has a CPU kernel."""
    name = op.partition(".")[0]
    return name.endswith("_") and any(_has_cpu_kernel(o) for o in _siblings(op, name.removesuffix("_")))


def _count(op: str) -> int:
    return len(overload(op)._schema.arguments)


def _is_carried(kind: str) -> bool:
    inner = kind.rpartition("[")[2].rstrip("]")
    return inner in _CARRIED and not ("List[" in kind and inner in ("number", "Scalar", "str"))
