"""Which overload to write a kernel for, to serve an operator natively."""

from dataclasses import dataclass

import torch

from torch_backend.operators import dispatch
from torch_backend.operators.forms import Forms, forms_of


@dataclass(frozen=True)
class KernelTarget:
    """The overload to write a kernel for.

    Attributes:
        op: the overload; an out form where there is one.
        serves: the other forms that a kernel for ``op`` serves, if it is in the device library or in Python.
        replaces: the overloads to register in C++ (TORCH_LIBRARY_IMPL), which derives no forms: ``op``, and those of
            ``serves`` that have a kernel of their own now.
        is_view: whether ``op`` makes a view, for which a device library has no kernels: it knows memory, not tensors.
    """

    op: str
    serves: tuple[str, ...]
    replaces: tuple[str, ...]
    is_view: bool


def target_of(overload: str) -> KernelTarget | None:
    """What to write for ``overload``.

    None for an operator that is made of others on every device: it is as native as these are.
    """
    if dispatch.has_kernel(overload, "CompositeImplicitAutograd"):
        return None
    forms = forms_of(overload)
    op = _original(overload, forms)
    serves = _served_by(op, forms)
    return KernelTarget(op, serves, (op, *(form for form in serves if _has_own_kernel(form))), _is_view(op))


def _original(overload: str, forms: Forms) -> str:
    """A form that PyTorch does not make from the others; the out form first, because it serves the others."""
    if forms.out is not None and _serves_all(forms.out, forms):
        return forms.out
    written = [form for form in forms if not _is_generated(form)]
    without_default = [form for form in written if dispatch.composite_key(form) is None]
    candidates = without_default or written or [overload]
    return overload if overload in candidates else candidates[0]


def _serves_all(out: str, forms: Forms) -> bool:
    """Whether the out form is written, not made from another one."""
    if _is_generated(out):
        return False
    is_structured = forms.functional is not None and dispatch.has_kernel(
        forms.functional, "CompositeExplicitAutogradNonFunctional"
    )
    return is_structured or dispatch.composite_key(out) is None


def _served_by(op: str, forms: Forms) -> tuple[str, ...]:
    serves_all = op == forms.out and _serves_all(op, forms)
    return tuple(form for form in forms if form != op and (serves_all or _is_generated(form)))


def _is_generated(overload: str) -> bool:
    return dispatch.has_tag(overload, torch.Tag.generated)


def _is_view(overload: str) -> bool:
    returns = dispatch.schema(overload).returns
    return dispatch.has_tag(overload, torch.Tag.inplace_view) or any(
        returned.alias_info is not None and not returned.alias_info.is_write for returned in returns
    )


def _has_own_kernel(overload: str) -> bool:
    return dispatch.has_kernel(overload, "PrivateUse1") or dispatch.composite_key(overload) is None
