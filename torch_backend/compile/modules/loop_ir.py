"""What a kernel computes, before it is text: statements over expressions with their operands, and loops around them.

Passes ask nodes which names they use and which they set. ``write`` makes C of them, once all passes are done.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import sympy
from torch._inductor.codegen.common import CSEVariable

from torch_backend.compile.modules.indices import IndexPrinter


@dataclass(frozen=True)
class Index:
    """An offset, a size or a position. ``at`` has what stands in place of a symbol."""

    expr: sympy.Expr
    printer: type[IndexPrinter] = IndexPrinter
    at: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Expression:
    """C with a place for each operand: ``{0} + {1}``. An operand is a name, an index, a number or an expression."""

    form: str
    operands: tuple[Any, ...] = ()
    texts: tuple[str, ...] = ()
    """Of codegen/kernels, with the functions that it calls."""


class Load(Expression):
    """Of an element, which may be another one after a store."""


def expression(form: str, *operands: Any) -> Expression:
    """``form`` over ``operands``."""
    return Expression(form, operands)


@dataclass(frozen=True)
class Statement:
    """What does something, perhaps gives a variable another value, or stores into a buffer."""

    value: Expression
    sets: str = ""
    buffer: str = ""


def leaves(node: Any) -> TypeGuard[Statement]:
    """Whether ``node`` may go on with the next iteration."""
    return isinstance(node, Statement) and "continue;" in node.value.form


@dataclass(frozen=True)
class Declaration:
    """Of a variable of a type."""

    kind: str
    sets: str
    value: Expression

    def assignment(self) -> Statement:
        """The same for a variable that is there."""
        return Statement(expression("{0} = {1};", self.sets, self.value), self.sets)


@dataclass(frozen=True)
class Block:
    """Statements that ``head`` repeats. ``subscripts``: each name is an array there, and this its element."""

    head: str
    body: list[Any]
    subscripts: Mapping[str, str] = field(default_factory=dict)


Node = str | Statement | Declaration | Block
"""Text has no operands."""


def operands_of(node: Any) -> Iterator[Any]:
    """``node``, and all within it."""
    yield node
    if isinstance(node, Expression):
        inner: Iterable[Any] = node.operands
    elif isinstance(node, (Statement, Declaration)):
        inner = (node.value,)
    else:
        inner = node.body if isinstance(node, Block) else ()
    for each in inner:
        yield from operands_of(each)


def names_in(nodes: Iterable[Any]) -> set[str]:
    """The variables and index symbols that ``nodes`` use."""
    found: set[str] = set()
    for operand in (each for node in nodes for each in operands_of(node)):
        if isinstance(operand, Index):
            found |= {str(symbol) for symbol in operand.expr.free_symbols}
        elif isinstance(operand, (str, CSEVariable)):
            found.add(str(operand))
    return found


def texts_in(nodes: Iterable[Any]) -> set[str]:
    """Of codegen/kernels, those that ``nodes`` call functions of."""
    return {text for node in nodes for each in operands_of(node) if isinstance(each, Expression) for text in each.texts}


def hoist(lines: list[Node], varying: set[str]) -> tuple[list[Node], list[Node]]:
    """Declarations in a loop that are the same whenever it runs, where ``varying`` is what is not; the other lines."""
    varying = varying | {line.sets for line in lines if isinstance(line, Statement)}
    once: list[Node] = []
    each: list[Node] = []
    for line in lines:
        is_load = any(isinstance(operand, Load) for operand in operands_of(line))
        if isinstance(line, Declaration) and line.sets not in varying and not (is_load or names_in([line]) & varying):
            once.append(line)
        else:
            each.append(line)
            if isinstance(line, Declaration):
                varying.add(line.sets)
    return once, each


def without_unused(lines: list[Node], used: set[str]) -> list[Node]:
    """``lines`` but for the declarations that neither they nor ``used`` have a use for."""
    used = used | {line.sets for line in lines if isinstance(line, Statement)}
    kept: list[Node] = []
    for line in reversed(lines):
        if not isinstance(line, Declaration) or line.sets in used:
            kept.append(line)
            used |= names_in([line])
    return kept[::-1]


def write(nodes: Iterable[Node], subscripts: Mapping[str, str] | None = None) -> list[str]:
    """The lines of C."""
    names = subscripts or {}
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, Block):
            body = write(node.body, {**names, **node.subscripts})
            lines += [f"{node.head} {{", *(f"  {line}" for line in body), "}"]
        elif isinstance(node, Declaration):
            lines.append(f"{node.kind} {_text(node.sets, names)} = {_text(node.value, names)};")
        else:
            lines.append(node if isinstance(node, str) else _text(node.value, names))
    return lines


def _text(operand: Any, names: Mapping[str, str]) -> str:
    if isinstance(operand, Expression):
        return operand.form.format(*(_text(each, names) for each in operand.operands))
    if isinstance(operand, Index):
        return str(operand.printer({**names, **dict(operand.at)}).doprint(operand.expr))
    return names.get(str(operand), str(operand))
