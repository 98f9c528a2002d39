"""A custom operator as it was declared, checked and ready to be registered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_backend.autocast import Policy

Function = Callable[..., Any]

PLUGIN = "plugin"
"""The kernel of this name in the device library's table kernels.1."""


@dataclass(frozen=True)
class Named:
    """A function that is named by its place and not imported: for those who only write text about it."""

    place: str
    """As "module:function"."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Nobody calls it."""
        raise RuntimeError(f"{self.place} was only read in a declaration; it was not imported.")


@dataclass(frozen=True)
class LikeRule:
    """Outputs that have the shapes, strides and dtypes of arguments."""

    arguments: tuple[str, ...]
    """One for each output."""
    dtype: torch.dtype | None = None
    """For all outputs, instead of the argument's."""


@dataclass(frozen=True)
class BackwardOperator:
    """Gradients that another operator computes."""

    operator: str
    arguments: Mapping[str, str]
    """Argument of the backward operator -> what it gets: "grad", "grad.1", "output", "output.1" or an input."""
    gradients: tuple[str, ...]
    """The inputs that the backward operator's results are the gradients of, in order."""


@dataclass(frozen=True)
class BackwardFunction:
    """Gradients that a function ``(ctx, *grads)`` computes: one for each positional argument, None for none."""

    function: Function
    save: tuple[str, ...] = ()
    """Inputs and outputs ("output", "output.1") that ``ctx.saved_tensors`` has, in order."""
    setup_context: Function | None = None
    """``(ctx, inputs, output)``, instead of ``save``."""


@dataclass(frozen=True)
class Operator:
    """One custom operator."""

    func: str
    """The schema with its namespace: "acme::rotary(Tensor x) -> Tensor"."""
    schema: torch.FunctionSchema
    kernel: Function | str
    """A function, or "plugin"."""
    meta: Function | LikeRule | None
    """None: the operator returns nothing."""
    backward: BackwardFunction | BackwardOperator | None = None
    vmap: Function | None = None
    autocast: Policy | None = None
    reroute: tuple[str, ...] = field(default=())
    doc: str = ""

    @property
    def overload(self) -> str:
        """Namespace, name and overload: "acme::rotary"."""
        return self.func.partition("(")[0].strip()

    @property
    def namespace(self) -> str:
        """As "acme"."""
        return self.overload.partition("::")[0]

    @property
    def name(self) -> str:
        """Without namespace and overload: "rotary"."""
        return self.overload.partition("::")[2].partition(".")[0]
