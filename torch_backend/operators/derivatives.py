"""How PyTorch differentiates an operator, and which operators exist for its backward pass.

Read from the derivatives.yaml that torchgen carries: PyTorch's autograd kernels are made from its entries. The text is
enough, so pyyaml is not needed.
"""

import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from torch_backend.operators import dispatch
from torch_backend.operators.forms import forms_of

_FORMULA = re.compile(r"^  (?!output_differentiability:|dispatch:)[^:]+: (?!non_differentiable\b)", re.MULTILINE)

Derivation = Literal["composite", "formula", "kernel", "none"]


@dataclass(frozen=True)
class Derivative:
    """How gradients come about.

    Attributes:
        derivation: "composite", through the operators that this one is made of; "formula", PyTorch has one, so that a
            device writes the forward pass only; "kernel", a library registered an autograd kernel; "none", PyTorch
            cannot differentiate it, or there is nothing to differentiate.
        operators: those that the formula calls and that exist for backward passes. A device needs their kernels, too.
    """

    derivation: Derivation
    operators: tuple[str, ...] = ()


def derivative_of(overload: str) -> Derivative:
    """The derivative of ``overload``; of an out or in-place form, that of the operator's functional form."""
    entry = _entry(overload)
    if entry is not None:
        return Derivative("formula", _backward_operators(entry))
    if dispatch.has_kernel(overload, "CompositeImplicitAutograd"):
        private = f"Autograd{torch._C._dispatch_key_name(torch._C.DispatchKey.PrivateUse1)}"
        return Derivative("kernel" if dispatch.has_kernel(overload, private) else "composite")
    # PyTorch registers autograd kernels for its operators without a derivative as well.
    return Derivative("kernel" if not overload.startswith("aten::") and _has_autograd_kernel(overload) else "none")


def _has_autograd_kernel(overload: str) -> bool:
    return any(dispatch.has_kernel(overload, key) for key in ("Autograd", "AutogradPrivateUse1"))


def _entry(overload: str) -> str | None:
    """The formulas for ``overload``, None if there are none."""
    entries = _entries()
    forms = forms_of(overload)
    for form in (overload, forms.functional, forms.inplace):
        if form is not None and form in entries:
            return entries[form]
    return None


@functools.cache
def _entries() -> dict[str, str]:
    """What derivatives.yaml says of each differentiable overload."""
    torchgen = importlib.util.find_spec("torchgen")
    if torchgen is None or torchgen.origin is None:
        return {}
    text = (Path(torchgen.origin).parent / "packaged" / "autograd" / "derivatives.yaml").read_text()
    entries = {}
    for entry in re.split(r"^- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = entry.partition("(")
        formulas = "\n".join(line for line in rest.split("\n")[1:] if not line.lstrip().startswith("#"))
        if re.search(
            r"^  (?!output_differentiability:|dispatch:)[^:]+: (?!non_differentiable\b)", formulas, re.MULTILINE
        ):
            entries[f"aten::{name.strip()}"] = formulas
    return entries


def _backward_operators(formulas: str) -> tuple[str, ...]:
    """Formulas also call helper functions of C++ with such names; what those do is not in the file."""
    called = re.findall(r"\b(\w*backward\w*)\(", formulas)
    operators = {f"aten::{name.removesuffix('_symint')}" for name in called}
    return tuple(sorted(filter(torch._C._jit_get_schemas_for_operator, operators)))
