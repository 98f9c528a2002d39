"""What torch_backend uses of PyTorch's compiler that PyTorch does not document: all of it, and whether it is there.

A seam is looked at when the compiler is imported. If one is gone or called otherwise, what needs it is left out, and a
warning names it.
"""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seam:
    """A function, class or table of a module of PyTorch's."""

    module: str
    name: str
    versions: str
    """Of torch in which it was seen, the first and the last."""
    parameters: tuple[str, ...] = ()
    """The first ones of a function, in order; () if it is none, or if it is not called with any."""

    def __str__(self) -> str:
        """Where it is, as Python names it."""
        return f"{self.module}.{self.name}"

    def get(self) -> Any:
        """What is there. AttributeError or ImportError if nothing is."""
        value: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            value = getattr(value, part)
        return value

    def replace(self, value: Any) -> None:
        """Put ``value`` there."""
        owner, _, name = self.name.rpartition(".")
        setattr(
            Seam(self.module, owner, self.versions).get() if owner else importlib.import_module(self.module),
            name,
            value,
        )

    def problem(self) -> str | None:
        """What is not as it was, as a sentence; None if the seam is as expected."""
        seen = f"as it was in torch {self.versions}"
        try:
            value = self.get()
        except (AttributeError, ImportError):
            return f"{self} is not there, {seen}."
        if self.parameters:
            parameters = tuple(inspect.signature(value).parameters)[: len(self.parameters)]
            if parameters != self.parameters:
                return f"{self} takes {', '.join(parameters)}, and not {', '.join(self.parameters)}, {seen}."
        return None


COMPILE_FX = Seam("torch._inductor.compile_fx", "compile_fx", "2.11 to 2.15", ("model_", "example_inputs_"))
"""The default backend, called with a graph as Dynamo captured it."""

GENERATE = Seam(
    "torch._inductor.compile_fx",
    "fx_codegen_and_compile",
    "2.11 to 2.15",
    ("gm", "example_inputs", "inputs_to_check"),
)
"""Makes code of a graph of AOTAutograd's that was in no cache."""

COMPILED_GRAPH = Seam("torch._inductor.output_code", "CompiledFxGraph", "2.11 to 2.15")
"""What GENERATE returns, and Inductor's cache stores."""

AFTER_LOADING = Seam(
    "torch._inductor.output_code",
    "CompiledFxGraph.after_deserialization",
    "2.11 to 2.15",
    ("self", "constants"),
)
"""Gives a graph that was in the cache its ``current_callable`` again."""

CAPTURED_ONLY = (COMPILE_FX,)
HOST_GRAPHS = (COMPILE_FX, GENERATE, COMPILED_GRAPH, AFTER_LOADING)


def problem_of(seams: tuple[Seam, ...]) -> str | None:
    """The first problem there is with any of ``seams``."""
    return next(filter(None, (seam.problem() for seam in seams)), None)
