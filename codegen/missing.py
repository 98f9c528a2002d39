"""``python -m codegen.missing``: the elementwise operators that no compiled kernel serves, and why.

An operator is elementwise if PyTorch tags it so or computes it with a TensorIterator. Without an entry of its own in
codegen/kernels/pointwise.yaml it may be made of others (a composite), or be named under ``missing`` there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torchgen.model import NativeFunction

from . import kernel_texts, operators, parse

COMPOSITE = "made of other operators"


def elementwise(functions: Iterable[NativeFunction]) -> list[NativeFunction]:
    """The operators that compute each element of their outputs from those at its place."""
    apart = operators.read().not_pointwise
    return [
        function
        for function in functions
        if "pointwise" in function.tags
        or (function.structured_inherits == "TensorIteratorBase" and _base(function) not in apart)
    ]


def reasons(functions: Sequence[NativeFunction]) -> dict[str, str | None]:
    """Why each elementwise overload has no kernel, by name; None if nobody has said."""
    table = kernel_texts.pointwise_table()
    served = {_signature(function) for function in functions if str(function.func.name) in table}
    return {
        str(function.func.name): _reason(function)
        for function in elementwise(functions)
        if _signature(function) not in served
    }


def unused_reasons(functions: Sequence[NativeFunction]) -> list[str]:
    """What is named under ``missing`` and is not, or is no elementwise operator."""
    names = reasons(functions)
    return [
        pattern
        for patterns in kernel_texts.missing_pointwise().values()
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _base(function: NativeFunction) -> str:
    return str(function.func.name.name.base)


def _signature(function: NativeFunction) -> tuple[str, str]:
    """What the functional, the in-place and the out= form have in common."""
    inputs = (argument for argument in function.func.arguments.flat_all if argument not in function.func.arguments.out)
    return function.func.name.name.base, ", ".join(f"{str(a.type).split('(')[0]} {a.name}" for a in inputs)


def _reason(function: NativeFunction) -> str | None:
    named = kernel_texts.missing_pointwise()
    for reason, patterns in named.items():
        if any(fnmatchcase(str(function.func.name), pattern) for pattern in patterns):
            return reason
    composite = function.has_composite_implicit_autograd_kernel or function.has_composite_explicit_autograd_kernel
    return COMPOSITE if composite else None


def main() -> int:
    """Returns the exit status: 1 if something has no kernel for no reason."""
    functions, _ = parse.native_functions()
    entries = len(kernel_texts.pointwise_entries(functions))
    missing = reasons(functions)
    for name, reason in sorted(missing.items(), key=lambda item: (str(item[1]), item[0])):
        if reason != COMPOSITE:
            print(f"{name:50} {reason or 'NO REASON IS GIVEN'}")
    composites = sum(reason == COMPOSITE for reason in missing.values())
    print(f"{len(elementwise(functions))} elementwise overloads; {entries} kernels; {composites} {COMPOSITE}")
    return 1 if None in missing.values() else 0


if __name__ == "__main__":
    sys.exit(main())
