"""``python -m codegen.arguments OUT SOURCES...``: where operators' arguments are in what their kernels are called with.

Of the overloads that the sources name, as ``op::index_reduce_out``: a name that the installed torch lacks is left out,
and then an error of the compiler's where it is used.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from torchgen.api import cpp
from torchgen.model import NativeFunction

from . import emit, parse


@dataclass(frozen=True)
class Overload:
    """An overload of the installed torch; see csrc/ops/compiled/engine/Overloads.h."""

    name: str  # "index_reduce.out"
    identifier: str  # "index_reduce_out", as in at::_ops
    arguments: tuple[str, ...]  # the schema's, and what it returns that is none of them


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="codegen.arguments", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    options = parser.parse_args()
    functions, _ = parse.native_functions()
    template = emit.TEMPLATES.get_template("OperatorArguments.h.jinja")
    emit.write_if_changed(options.out, template.render(overloads=overloads(functions, named_in(options.sources))))
    return 0


def named_in(sources: Iterable[Path]) -> set[str]:
    """The identifiers of overloads; where a macro writes ``op::name##_out``, those of all words of its source."""
    names = set()
    for text in map(Path.read_text, sources):
        names.update(re.findall(r"\bop::(\w+)", text))
        for ending in re.findall(r"\bop::\w+##(\w+)", text):
            names.update(word + ending for word in re.findall(r"\w+", text))
    return names


def overloads(functions: Iterable[NativeFunction], identifiers: Collection[str]) -> list[Overload]:
    """In the order of their names."""
    found = (_overload(function) for function in functions if function.func.name.unambiguous_name() in identifiers)
    return sorted(found, key=lambda overload: overload.name)


def _overload(function: NativeFunction) -> Overload:
    schema = function.func
    identifier = schema.name.unambiguous_name()
    names = [argument.name for argument in schema.arguments.flat_all]
    for name, returned in zip(cpp.return_names(function), schema.returns, strict=True):
        if returned.annotation is None:
            names.append(name)
    # C++ has no member that is called like its class.
    return Overload(str(schema.name), identifier, tuple(name + "_" * (name == identifier) for name in names))


if __name__ == "__main__":
    sys.exit(main())
