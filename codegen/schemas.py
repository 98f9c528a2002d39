"""The operators that csrc/ has hand-written kernels for have the schemas that these were written for."""

from __future__ import annotations

from collections.abc import Iterable

from torchgen.model import FunctionSchema, NativeFunction

from .typed import CodegenError


def check_schemas(functions: Iterable[NativeFunction], hand_written: Iterable[str]) -> int:
    """Compare the schemas ``hand_written`` with the installed torch; returns how many overloads it has of them.

    An overload that the installed torch does not have is none that can be called: its kernel waits. Raises CodegenError
    that names every operator whose schema is another one.
    """
    installed = {str(function.func.name): function.func for function in functions}
    changed, found = [], 0
    for text in hand_written:
        written_for = FunctionSchema.parse(text)
        schema = installed.get(str(written_for.name))
        found += schema is not None
        if schema is not None and str(schema) != str(written_for):
            changed.append(f"  {written_for.name}\n    written for: {written_for}\n    installed:   {schema}")
    if changed:
        raise CodegenError(
            "These operators have kernels in csrc/ that were written for another schema. Adapt the kernels, for both "
            "versions of torch if need be, and hand_written in codegen/operators.yaml:\n" + "\n".join(changed)
        )
    return found
