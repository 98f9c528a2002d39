"""The loops around what a kernel computes.

Work is divided as codegen/kernels/skeletons divides it. Where a block's items run one after the other (processors),
inner loops run over neighbours in memory, and div and mod are taken once for each row of them. Else neighbouring items
do neighbouring elements, and the items of a block reduce together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import sympy
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot
from torch._inductor.virtualized import V

from torch_backend.compile.modules import vectors
from torch_backend.compile.modules.groups import Group
from torch_backend.compile.modules.loop_ir import (
    Block,
    Declaration,
    Index,
    Node,
    expression,
    leaves,
    names_in,
)
from torch_backend.compile.modules.passes import Part, Reduced
from torch_backend.compile.modules.vectors import Vector, in_vectors, vectors_of

_LANES = 32
"""Accumulators that a processor has side by side for one reduction."""
_TILE = 256
"""Neighbours that a processor reduces side by side."""
_FOLD = 4096
"""Steps of a lane after which its sum is added to another: short sums of sums are more exact than long ones."""
_SHORT_ROW = 8
"""Rows of fewer elements are not worth a loop."""


@dataclass
class Loops:
    """Around the parts of one kernel."""

    parts: list[Part]
    trees: list[IterationRangesRoot]
    entries: list[IterationRangesEntry]
    index: Callable[[sympy.Expr], Index]
    strides: list[tuple[bool, bool]]
    """Of loads and stores: whether what is kept is side by side there, and whether what is reduced is."""
    reduces: bool
    in_stretches: bool
    """A block's items run one after the other."""
    is_independent: bool
    """An iteration stores nothing where another one does."""
    is_sequential: bool
    """An element that is reduced needs what the one before it found."""
    is_ordered: bool
    """What is stored depends on the order of iterations."""
    block_items: int
    processors: int
    """Of the device."""

    def around(self) -> list[Node]:
        """All there is to do."""
        if not self.reduces:
            return self._pointwise(self._lines)
        if self.in_stretches:
            length = self._reduces_columns()
            return self._rows() if length is None else self._columns(length)
        return self._items_alone() if self.group is None else self._groups(self.group)

    @property
    def _lines(self) -> list[Node]:
        return [line for part in self.parts if isinstance(part, list) for line in part]

    @property
    def per_block(self) -> int:
        """Elements that are kept that a block has; 0: as many as without reductions."""
        if self.in_stretches:
            return 0
        if not self.reduces:
            return self.block_items * vectors.COUNT if self._vectors else 0
        return self.block_items if self.group is None else self.group.across

    @cached_property
    def group(self) -> Group | None:
        """How the items of a block reduce together; None: they do not."""
        if self.in_stretches or not self.reduces or self.is_sequential or self.is_ordered:
            return None
        hint = V.graph.sizevars.optimization_hint
        kept, reduced = hint(self.trees[0].numel), hint(self.trees[-1].numel)
        return Group.of(kept, reduced, self._has_columns, self.block_items, self.processors)

    @property
    def _has_columns(self) -> bool:
        """Whether most neighbours in memory are kept, and not reduced."""
        return sum(kept and not reduced for kept, reduced in self.strides) > sum(reduced for _, reduced in self.strides)

    # ---- entries: what a flat range is divided into ----

    def _used(self, nodes: Iterable[Node], prefix: str) -> list[IterationRangesEntry]:
        names = names_in(nodes)
        return [entry for entry in self.entries if entry.root.prefix == prefix and entry.name in names]

    def _declared(self, entries: list[IterationRangesEntry], index: str, suffix: str = "") -> list[Node]:
        """The entries' values where the index of their root is ``index``."""
        nodes: list[Node] = []
        for entry in entries:
            value = replace(self.index(entry.expr), at=((str(entry.root.index_sym()), index),))
            nodes.append(Declaration("const Index", f"{entry.name}{suffix}", expression("{0}", value)))
        return nodes

    def _row_length(self, entries: list[IterationRangesEntry], numel: sympy.Expr) -> sympy.Expr | None:
        """So many neighbours share all entries but those that count neighbours. None: not worth it."""
        known = V.graph.sizevars
        breaks: list[sympy.Expr] = [numel]
        for entry in entries:
            if entry.divisor != 1:
                breaks.append(entry.divisor)
            if not known.statically_known_equals(entry.divisor * entry.length, numel):
                breaks.append(entry.divisor * entry.length)
        if all(each.is_Integer for each in breaks):
            length = sympy.Integer(gcd(*map(int, breaks)))
            return length if length >= _SHORT_ROW or length == numel else None
        for candidate in sorted(breaks, key=known.optimization_hint):
            if all(known.statically_known_multiple_of(each, candidate) for each in breaks):
                return candidate
        return None

    def _in_rows(self, entries: list[IterationRangesEntry], row: str, k: str) -> tuple[list[Node], list[Node]]:
        """The entries of a row that begins at ``row``; those of its element number ``k``."""
        once: list[Node] = []
        each: list[Node] = []
        for entry in entries:
            counts = entry.divisor == 1
            once += self._declared([entry], row, "_row" if counts else "")
            each += [f"const Index {entry.name} = {entry.name}_row + {k};"] * counts
        return once, each

    def _inner(self, length: sympy.Expr) -> Node:
        return Declaration("const Index", "inner", expression("{0}", self.index(length)))

    # ---- without reductions ----

    def _pointwise(self, lines: list[Node]) -> list[Node]:
        root = self.trees[0]
        entries = self._used(lines, root.prefix)
        length = self._row_length(entries, root.numel) if self.in_stretches else None
        independent: list[Node] = ["TB_INDEPENDENT"] if self.is_independent else []
        if length is None or length == root.numel:
            if self._vectors:
                return in_vectors(self._vectors, lines, self._declared(entries, "xindex"))
            whole = Block("TB_FOR(xindex, xnumel)", [*self._declared(entries, "xindex"), *lines])
            return [*(independent if self.in_stretches else []), whole]
        once, each = self._in_rows(entries, "(row * inner)", "k")
        row = Block("for (Index k = begin; k < stop; ++k)", [*each, *lines])
        return self._stretches(length, "inner", [*once, *independent, row])

    @cached_property
    def _vectors(self) -> dict[int, Vector]:
        """Of lines by their numbers, where several elements at once are worth it."""
        enough = self.processors * self.block_items * vectors.COUNT
        is_large = V.graph.sizevars.optimization_hint(self.trees[0].numel) >= enough
        if self.in_stretches or not (self.is_independent and is_large):
            return {}
        return vectors_of(self._lines, self._is_side_by_side)

    def _is_side_by_side(self, index: Index) -> bool:
        """Whether element n is at place n."""
        entry = next((each for each in self.entries if each.name == str(index.expr)), None)
        known = V.graph.sizevars
        return (
            entry is not None and entry.divisor == 1 and known.statically_known_equals(entry.length, entry.root.numel)
        )

    def _stretches(self, length: sympy.Expr, most: str, lines: list[Node]) -> list[Node]:
        """This block's part of xindex in pieces of a row: `begin` to `stop` of number `row`, at most `most` at once."""
        piece: list[Node] = [
            "const Index row = first / inner;",
            "const Index begin = first - row * inner;",
            f"const Index room = inner - begin < {most} ? inner - begin : {most};",
            "const Index stop = room < end - first ? begin + room : begin + (end - first);",
            *lines,
            "first += stop - begin;",
        ]
        first: list[Node] = ["Index first = TB_FIRST(xnumel);", "const Index end = TB_LAST(xnumel);"]
        return [self._inner(length), *first, Block("while (first < end)", piece)]

    # ---- with reductions ----

    def _each_reduced(self, reduced: Reduced, start: str, step: str) -> list[Node]:
        entries = self._declared(self._used(reduced.lines, "r0_"), "r0_index")
        head = f"for (Index r0_index = {start}; r0_index < r0_numel; {step})"
        return [*reduced.declared, Block(head, [*entries, *reduced.lines, *reduced.steps()])]

    def _each_kept(
        self, head: str, written: Callable[[Reduced], list[Node]], before: Sequence[Node] = ()
    ) -> list[Node]:
        lines: list[Node] = []
        for part in self.parts:
            lines += part if isinstance(part, list) else [*part.before, *written(part)]
        return [Block(head, [*before, *self._declared(self._used(lines, "x"), "xindex"), *lines])]

    def _items_alone(self) -> list[Node]:
        return self._each_kept("TB_FOR(xindex, xnumel)", lambda part: self._each_reduced(part, "0", "++r0_index"))

    def _groups(self, group: Group) -> list[Node]:
        arrays: list[Node] = []
        for part in self.parts:
            lines = part if isinstance(part, list) else part.before
            if any(map(leaves, lines)):
                arrays = ["TB_LOCAL_ARRAY(int, gone, 1);"]
                lines[:] = [each for line in lines for each in (group.leaving(line) if leaves(line) else [line])]

        def written(part: Reduced) -> list[Node]:
            hint = V.graph.sizevars.optimization_hint(self.trees[-1].numel)
            places = self._declared(self._used(part.lines, "r0_"), "r0_index")
            lines = [*part.declared, group.each(part, hint, places)]
            if part.reductions:
                arrays.extend(group.shared(part))
                lines += group.merged(part)
            return lines

        blocks = self._each_kept(group.head, written, group.here)
        return [*arrays, *group.once, *blocks]

    def _rows(self) -> list[Node]:
        """Processors: what is reduced is side by side, and has accumulators side by side."""

        def written(part: Reduced) -> list[Node]:
            root = self.trees[-1]
            entries = self._used(part.lines, "r0_")
            length = self._row_length(entries, root.numel)
            hint = V.graph.sizevars.optimization_hint(root.numel if length is None else length)
            if length is None or (part.reductions and (self.is_sequential or hint < 2 * _LANES)):
                return self._each_reduced(part, "0", "++r0_index")
            once, each = self._in_rows(entries, "row", "k")
            body = ["const Index r0_index = row + k;", *each, *part.lines]
            if part.reductions:
                return self._by_lanes(part, length, once, body + part.steps("_v[l]"))
            independent = ["TB_INDEPENDENT"] if self.is_independent and not self.is_sequential else []
            row = Block("for (Index k = 0; k < inner; ++k)", body)
            return self._over_rows(length, [*once, *independent, row])

        return self._each_kept("TB_FOR(xindex, xnumel)", written)

    def _over_rows(self, length: sympy.Expr, lines: list[Node]) -> list[Node]:
        if length == self.trees[-1].numel:
            return [Block("", [self._inner(length), "const Index row = 0;", *lines])]
        rows = Block("for (Index row = 0; row < r0_numel; row += inner)", lines)
        return [Block("", [self._inner(length), rows])]

    def _by_lanes(self, part: Reduced, length: sympy.Expr, once: list[Node], in_lane: list[Node]) -> list[Node]:
        def each(lines: list[Node], lanes: int | str = _LANES) -> list[Node]:
            return [Block(f"for (int l = 0; l < {lanes}; ++l)", [line]) for line in lines]

        def arrays(suffix: str) -> list[Node]:
            return [f"{kind} {name}{suffix}[{_LANES}];" for kind, name, _ in part.fields]

        def clear(suffix: str) -> list[Node]:
            return each([f"{name}{suffix}[l] = {initial};" for _, name, initial in part.fields])

        folds = V.graph.sizevars.optimization_hint(self.trees[-1].numel) > _LANES * _FOLD
        whole = Block(f"for (int l = 0; l < {_LANES}; ++l)", ["const Index k = j + l;", *in_lane])
        steps: list[Node] = [Block(f"for (; j + {_LANES} <= pause; j += {_LANES})", [whole])]
        if folds:
            pause = f"const Index pause = stop - j > {_LANES * _FOLD} ? j + {_LANES * _FOLD} : stop;"
            fold = each(part.merges("_sum[l]", "_v[l]"))
            steps = [Block(f"while (j + {_LANES} <= stop)", [pause, *steps, *fold, *clear("_v")])]
        else:
            steps = ["const Index pause = stop;", *steps]
        rest = Block("for (Index k = j; k < stop; ++k)", ["const int l = (int)(k - j);", *in_lane])
        halves = each(part.merges("_v[l]", "_v[l + offset]"), "offset")
        return [
            *[*arrays("_v"), *clear("_v")],
            *([*arrays("_sum"), *clear("_sum")] if folds else []),
            *self._over_rows(length, [*once, "const Index stop = inner;", "Index j = 0;", *steps, rest]),
            *(each(part.merges("_v[l]", "_sum[l]")) if folds else []),
            Block(f"for (int offset = {_LANES // 2}; offset > 0; offset /= 2)", halves),
            *(f"{kind} {name} = {name}_v[0];" for kind, name, _ in part.fields),
        ]

    def _columns(self, length: sympy.Expr) -> list[Node]:
        """Processors: neighbours are kept, so that a tile of them is reduced side by side."""
        arrays: list[Node] = []  # of what each of the tile has
        subscripts: dict[str, str] = {}

        def kept(lines: list[Node]) -> list[Node]:
            for line in lines:
                if isinstance(line, Declaration):
                    arrays.append(f"{line.kind} {line.sets}[{_TILE}];")
                    subscripts[line.sets] = f"{line.sets}[k - begin]"
            return [line.assignment() if isinstance(line, Declaration) else line for line in lines]

        pieces: list[tuple[Reduced | None, list[Node]]] = []  # in which pass over what is reduced, or in none
        for part in self.parts:
            if isinstance(part, Reduced):
                pieces += [(None, kept(part.before + part.declared)), (part, part.lines + part.steps())]
            else:
                pieces.append((None, kept(part)))
        used = self._used([line for _, lines in pieces for line in lines], "x")
        once, each = self._in_rows(used, "(row * inner)", "k")
        independent = ["TB_INDEPENDENT"] if self.is_independent else []
        body: list[Node] = []
        for reduced, lines in pieces:
            across: list[Node] = []
            if lines:
                across = [Block("for (Index k = begin; k < stop; ++k)", [*each, *lines], subscripts)]
            if reduced is not None:
                entries = self._declared(self._used(reduced.lines, "r0_"), "r0_index")
                head = "for (Index r0_index = 0; r0_index < r0_numel; ++r0_index)"
                across = [Block(head, [*entries, *independent, *across])]
            body += across
        return self._stretches(length, str(_TILE), [*once, *arrays, *body])

    def _reduces_columns(self) -> sympy.Expr | None:
        """The length of rows of what is kept, if neighbours there are reduced side by side."""
        root, reduced = self.trees[0], self.trees[-1]
        lines = [line for part in self.parts for line in (part if isinstance(part, list) else part.before + part.lines)]
        length = self._row_length(self._used(lines, "x"), root.numel)
        hint = V.graph.sizevars.optimization_hint
        if length is None or hint(length) < _SHORT_ROW:
            return None
        if hint(reduced.numel) < 2 * _LANES and hint(root.numel) > hint(reduced.numel):
            return length
        return length if self._has_columns else None
