"""Whether a device has to bring a kernel for an overload, decided from what PyTorch declares.

Note [What a device must write]
    An operator runs on a device if the device has a kernel, else if PyTorch has a default (a composite kernel, or a
    form that torchgen derives from another one), else if its CPU kernel can stand in: on copies of the arguments, with
    the result copied back. What is left **must** be written. A default or a CPU kernel is not enough in these cases:

    - the CPU fallback allocates and copies, so it cannot run what it is made of itself;
    - a view shares its argument's memory, a copy from the CPU does not, and writes to it would be lost. The same holds
      for operators that give a tensor other memory or another size (torch's tag ``inplace_view``), and for tensors
      without memory;
    - the default of an operator called ``..._overrideable`` raises: it is there to be overridden.

    Of the operators with neither a default nor a CPU kernel, those for other layouts than strided and those named after
    another device's library are not called on a strided tensor of this device. All others must be written: without
    them, the feature that calls them does not work. Which features a device needs, PyTorch does not declare.
"""

import re
from collections.abc import Set
from dataclasses import dataclass

from torch_backend.declarations.model import Reason, Requirement

_FALLBACK_TOOLS = frozenset({"empty.memory_format", "empty_strided", "_copy_from", "_copy_from_and_resize"})
_WITHOUT_MEMORY = frozenset({"_efficientzerotensor"})
_LIBRARIES = frozenset({"cudnn", "miopen", "mps", "mkldnn", "cslt", "triton"})
_OTHER_LAYOUT = re.compile(r"Sparse|Quantized|NestedTensor|Mkldnn")


@dataclass(frozen=True)
class Facts:
    """What torchgen says of one overload.

    Attributes:
        name: without namespace, "add.Tensor".
        keys: dispatch keys for which ATen has a kernel.
        implicit: there is a CompositeImplicitAutograd kernel.
        default: there is a composite kernel of any kind, written or derived.
        delegates: derived from a structured operator's out form.
        generated: torchgen added this form of the operator.
        view: the result may share an argument's memory.
        changes_memory: gives its argument other memory or another size (tag ``inplace_view``).
    """

    name: str
    keys: Set[str]
    implicit: bool
    default: bool
    delegates: bool
    generated: bool
    view: bool
    changes_memory: bool


def requirement(facts: Facts) -> tuple[Requirement, Reason]:
    """What a device has to do for the overload, and why; see Note [What a device must write]."""
    if facts.name in _FALLBACK_TOOLS:
        return "must", "fallback"
    if facts.default:
        return _with_default(facts)
    return _with_cpu_kernel(facts) if "CPU" in facts.keys else _without_kernel(facts)


def _with_default(facts: Facts) -> tuple[Requirement, Reason]:
    if facts.implicit:
        return "need not", "composite"
    if facts.delegates:
        return "need not", "structured"
    if facts.generated:
        return "need not", "generated"
    if "overrideable" in facts.name:
        return "must", "overrideable"
    return "may", "default"


def _with_cpu_kernel(facts: Facts) -> tuple[Requirement, Reason]:
    if facts.changes_memory or facts.name in _WITHOUT_MEMORY:
        return "must", "memory"
    return ("must", "view") if facts.view else ("may", "cpu")


def _without_kernel(facts: Facts) -> tuple[Requirement, Reason]:
    if not facts.keys:
        return "need not", "subclass"
    if _LIBRARIES.intersection(facts.name.split(".")[0].split("_")):
        return "need not", "library"
    devices = facts.keys - {"Meta"}
    if devices and all(_OTHER_LAYOUT.search(key) for key in devices):
        return "need not", "layout"
    return "must", "no kernel"
