"""What PyTorch's operators ask of a device, for the installed torch or another one.

A table like PyTorch's own RegistrationDeclarations.h, with the conclusion drawn: for every overload of namespace aten
whether a device **must** have a kernel, **may** have one, or **need not**::

    from torch_backend import declarations
    table = declarations.installed()
    table["aten::add.out"].requirement                    # "may": the CPU fallback can run it
    print(declarations.difference(declarations.load("declarations-2.12.json"), table))

It is of PyTorch alone: on a device of torch_backend, most of what must be written is written already (see
:mod:`torch_backend.operators`). Needed are torchgen, which comes with torch, and pyyaml, but no active device.
"""

from torch_backend.declarations.difference import Change, Difference, difference
from torch_backend.declarations.model import REASONS, Declaration, Declarations, Requirement
from torch_backend.declarations.reading import installed, load

__all__ = [
    "REASONS",
    "Change",
    "Declaration",
    "Declarations",
    "Difference",
    "Requirement",
    "difference",
    "installed",
    "load",
]
