"""One kernel of a compiled graph: what inductor wants computed for each element, and the loops around it.

Work is divided as codegen/kernels/skeletons divides it. Where a block's items run one after the other (processors),
inner loops run over neighbours in memory, and div and mod are taken once for each row of them. Else neighbouring items
do neighbouring elements, and the items of a block reduce together.
"""
# ruff: noqa: D102, D107 - most methods are SIMDKernel's

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSE, CSEVariable, DeferredLine, PythonPrinter
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot, SIMDKernel
from torch._inductor.utils import IndentedBuffer, upcast_compute_type
from torch._inductor.virtualized import OpsWrapper, V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.value_ranges import ValueRanges

from torch_backend import _C
from torch_backend.compile.modules.operations import IndexPrinter, Operations, literal, name_of, type_of

_LANES = 32
"""Accumulators that a processor has side by side for one reduction."""
_TILE = 256
"""Neighbours that a processor reduces side by side."""
_FOLD = 4096
"""Steps of a lane after which its sum is added to another: short sums of sums are more exact than long ones."""
_IN_TURNS = (
    "#ifdef __OPENCL_VERSION__",
    "#undef TB_INDEPENDENT",
    '#define TB_INDEPENDENT _Pragma("clang loop vectorize_width(16) interleave_count(4)")',
    '#pragma clang diagnostic ignored "-Wpass-failed"',  # where functions are called that have no vectors
    "#endif",
)
"""Drivers for processors do not take steps of several iterations in turns where a loop is long, and wait for each."""
_SHORT_ROW = 8
"""Rows of fewer elements are not worth a loop."""


class TypedCSE(CSE[CSEVariable, str]):
    """Variables with their types; those outside the loops of reductions stay when the loops end."""

    def generate(self, buffer: IndentedBuffer, expr: Any, **options: Any) -> CSEVariable:
        if not isinstance(expr, str) or not options.get("assignment", True):
            return super().generate(buffer, expr, **options)
        found = self.try_get(expr)
        if found is None:
            dtype = options["dtype"]
            found = self.newvar(options.get("bounds", ValueRanges.unknown()), dtype, options.get("shape"))
            found.use_count = 1
            self.put(expr, found)
            buffer.writeline(V.kernel.declare(found, expr))
            if not V.kernel.inside_reduction or buffer is V.kernel.outer:
                V.kernel.outer_variables.add(found)
        else:
            found.use_count += 1
        return found


@dataclass
class Reduction:
    """What is kept from element to element: fields ``name``_0, ..., and statements over them and another's fields."""

    name: str
    types: list[str]
    initial: list[str]
    values: list[str]
    merge: Callable[[list[str], list[str]], str]

    @property
    def fields(self) -> list[str]:
        return [f"{self.name}_{i}" for i in range(len(self.types))]


@dataclass
class Loop:
    """A pass over what is reduced, and what is computed once before it."""

    before: list[Any]
    lines: list[Any]
    reductions: list[Reduction] = field(default_factory=list)


def _taken(*buffers: IndentedBuffer) -> list[Any]:
    """The lines, and those that are stores, of which later nothing may be left. The buffers are empty then."""
    lines = [line for buffer in buffers for line in buffer._lines if isinstance(line, (str, DeferredLine))]
    for buffer in buffers:
        buffer.clear()
    return lines


def _resolved(lines: list[Any]) -> list[str]:
    found = [line() if isinstance(line, DeferredLine) else line for line in lines]
    return [line for line in found if line]


def _block(head: str, *lines: Iterable[str]) -> list[str]:
    return [f"{head} {{", *(f"  {line}" for part in lines for line in part), "}"]


def _max_or_min(sign: str, is_float: bool) -> Callable[[list[str], list[str]], str]:
    def merge(a: list[str], b: list[str]) -> str:
        nan = f"{b[0]} != {b[0]} || " if is_float else ""
        return f"{a[0]} = {nan}{b[0]} {sign} {a[0]} ? {b[0]} : {a[0]};"

    return merge


def _arg(sign: str, is_float: bool) -> Callable[[list[str], list[str]], str]:
    # The first of those that are equal; NaN goes before everything.
    def merge(a: list[str], b: list[str]) -> str:
        better, equal = f"{b[0]} {sign} {a[0]}", f"{b[0]} == {a[0]}"
        if is_float:
            better = f"({better} || ({b[0]} != {b[0]} && {a[0]} == {a[0]}))"
            equal = f"({equal} || ({b[0]} != {b[0]} && {a[0]} != {a[0]}))"
        return f"if ({better} || ({equal} && {b[1]} < {a[1]})) {{ {a[0]} = {b[0]}; {a[1]} = {b[1]}; }}"

    return merge


def _welford(kind: str, a: list[str], b: list[str]) -> str:
    if len(b) == 1:  # an element
        return (
            f"{{ const {kind} tb_d = {b[0]} - {a[0]}; {a[2]} += 1; {a[0]} += tb_d / {a[2]}; "
            f"{a[1]} += tb_d * ({b[0]} - {a[0]}); }}"
        )
    return (
        f"{{ const {kind} tb_n = {a[2]} + {b[2]}, tb_d = {b[0]} - {a[0]}, tb_w = tb_n == 0 ? 0 : {b[2]} / tb_n; "
        f"{a[0]} += tb_d * tb_w; {a[1]} += {b[1]} + tb_d * tb_d * {a[2]} * tb_w; {a[2]} = tb_n; }}"
    )


_EXTREMES = {
    torch.bool: ("0", "1"),
    torch.uint8: ("0", "255"),
    torch.int8: ("(-128)", "127"),
    torch.int16: ("(-32768)", "32767"),
    torch.int32: ("(-2147483647 - 1)", "2147483647"),
    torch.int64: ("(-9223372036854775807L - 1)", "9223372036854775807L"),
}


class ModuleKernel(SIMDKernel[CSEVariable]):
    """Inductor's kernel over flat ranges, ``xindex`` of what is kept and ``r0_index`` of what is reduced."""

    overrides = Operations
    suffix = ";"
    sexpr = kexpr = staticmethod(IndexPrinter().doprint)
    pexpr = staticmethod(PythonPrinter().doprint)
    index_dtype = "tl.int64"  # of indices as values, which PyTorch's propagation of dtypes asks for by this name

    def __init__(self, tiling: dict[str, sympy.Expr], **options: Any) -> None:
        super().__init__(tiling, **options)
        self.cse = TypedCSE(self.newvar_prefix, self.suffix)
        self.device = V.graph.get_current_device_or_throw().index or 0
        self.in_stretches = _C.runs_in_stretches(self.device)
        self.texts: OrderedSet[str] = OrderedSet()
        self.atomics: OrderedSet[torch.dtype] = OrderedSet()
        self.outer = IndentedBuffer()  # before the loop that is being written
        self.after: list[Any] = []  # that loop
        self.outer_variables: OrderedSet[CSEVariable] = OrderedSet()
        self.reductions: list[Reduction] = []  # of that loop
        self.parts: list[Loop | list[str]] = []
        self.accumulators = 0
        self.is_double = self.may_fail = self.in_order = self.scatters = False
        self.host_scalars: dict[str, str] = {}
        self.strides: list[tuple[bool, bool]] = []

    # ---- what is computed ----

    def declare(self, variable: CSEVariable, expression: str) -> str:
        """A variable's declaration."""
        assert variable.dtype is not None
        self.note(variable.dtype)
        return f"{type_of(variable.dtype)} {variable} = {expression};"

    def note(self, dtype: torch.dtype) -> None:
        """A value of ``dtype`` takes part. Raises NotImplementedError if the device does not compute in it."""
        if dtype == torch.float64 and not self.is_double:
            if not _C.computes_double(self.device):
                name = torch._C._get_privateuse1_backend_name()
                raise NotImplementedError(f"{name}:{self.device} does not compute in torch.float64")
            self.is_double = True

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        dtype = V.graph.get_dtype(name)
        computed = upcast_compute_type(dtype)
        device = V.graph.get_buffer(name).get_device() if name not in V.graph.constants else None
        if device is not None and device.type == "cpu":  # a number in a tensor
            number = self.host_scalars.setdefault(name, f"hs{len(self.host_scalars)}")
            return self.cse.generate(self.loads, f"(({type_of(dtype)}){number})", dtype=computed)
        place = self.args.input(name)
        index = self.prepare_indexing(index)
        text = f"TB_LOAD_{name_of(dtype)}({place}, {self.index_to_str(index)})"
        if self._load_mask:
            text = f"({self._load_mask} ? {text} : {literal(self._load_other or 0, computed)})"
        self._note_strides(index)
        return self.cse.generate(self._buffer_for(index), text, dtype=computed)

    def _buffer_for(self, index: sympy.Expr) -> IndentedBuffer:
        """Where the lines go that need ``index``."""
        if self._load_mask or self.is_indirect_indexing(index):  # both are computed
            return self.compute
        is_kept = self.inside_reduction and not any(map(self._is_reduced, index.free_symbols))
        return self.outer if is_kept else self.loads

    def _is_reduced(self, symbol: sympy.Basic) -> bool:
        entry = self.range_tree_nodes.get(symbol)
        return entry is not None and entry.is_reduction

    def _note_strides(self, index: sympy.Expr) -> None:
        """Which neighbours are neighbours in memory: those that are kept, those that are reduced."""
        if self.inside_reduction and not self.is_indirect_indexing(index):
            strides = self.get_strides_of_load(index)
            steps = {str(root)[0]: V.graph.sizevars.simplify(step) for root, step in strides.items()}
            if steps.get("r", 0) != 0:
                self.strides.append((steps.get("x", 0) == 1, steps["r"] == 1))

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        place = self.args.output(name)
        dtype = V.graph.get_dtype(name)
        index = self.prepare_indexing(index)
        where = self.index_to_str(index)
        if mode is None:
            line = f"TB_STORE_{name_of(dtype)}({place}, {where}, {value});"
        elif mode == "atomic_add":
            line = self._atomic_add(place, where, value, dtype)
        else:
            raise NotImplementedError(f"stores of kind {mode} in kernels that a device compiles")
        self.note(dtype)
        self._note_strides(index)
        self.scatters |= self.is_indirect_indexing(index)
        self.stores.writeline(DeferredLine(name, line))

    def _atomic_add(self, place: str, where: str, value: CSEVariable, dtype: torch.dtype) -> str:
        name = name_of(dtype)
        if self.in_stretches:  # one block, in order, as the CPU adds
            self.in_order = True
            return f"TB_STORE_{name}({place}, {where}, TB_LOAD_{name}({place}, {where}) + {value});"
        self.in_order = not self.inside_reduction
        if dtype == torch.int32:
            return f"TB_ATOMIC_ADD_i32((TB_GLOBAL i32*){place} + {where}, {value});"
        if dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
            raise NotImplementedError(f"atomic additions of {dtype}")
        self.atomics.add(dtype)
        return f"tb_atomic_add_{name}({place}, {where}, {value});"

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        place = self.args.output(name)
        before, self.inside_reduction = self.inside_reduction, False
        index = self.prepare_indexing(index)
        self.inside_reduction = before
        dtype = V.graph.get_dtype(name)
        self.note(dtype)
        line = f"TB_STORE_{name_of(dtype)}({place}, {self.index_to_str(index)}, {value});"
        self.after.append(DeferredLine(name, line))

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        self.may_fail = True
        expr = self.prepare_indexing(expr)
        index, limit = self.index_to_str(expr), self.index_to_str(size)
        wrong = " || ".join([f"{index} < 0"] * lower + [f"{index} >= {limit}"] * upper)
        if self._load_mask:
            wrong = f"{self._load_mask} && ({wrong})"
        is_variable = expr.is_Symbol and self.is_indirect_indexing(expr)
        instead = f"{index} = 0;" if is_variable else "continue;"
        report = f"tb_report(error_cell, TB_INDEX_OUT_OF_RANGE, args.n[0].i64_, {index}, {limit});"
        self._buffer_for(expr).writeline(f"if ({wrong}) {{ {report} {instead} }}")

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        raise NotImplementedError("assertions in kernels that a device compiles")

    # ---- reductions ----

    def _reduction_of(self, kind: str, dtype: torch.dtype, values: list[str]) -> tuple[Reduction, list[torch.dtype]]:
        """The reduction, and the dtypes of its results."""
        computed = upcast_compute_type(dtype)
        is_float = computed.is_floating_point
        ctype = type_of(computed)
        simple: dict[str, tuple[str, Callable[[list[str], list[str]], str]]] = {
            "sum": ("0", lambda a, b: f"{a[0]} += {b[0]};"),
            "prod": ("1", lambda a, b: f"{a[0]} *= {b[0]};"),
            "xor_sum": ("0", lambda a, b: f"{a[0]} ^= {b[0]};"),
            "any": ("0", lambda a, b: f"{a[0]} |= {b[0]} != 0;"),
        }
        name = f"acc{self.accumulators}"
        self.accumulators += 1
        if kind in simple:
            initial, merge = simple[kind]
            if kind == "any":
                return Reduction(name, ["i32"], [initial], values, merge), [torch.bool]
            return Reduction(name, [ctype], [initial], values, merge), [computed]
        if kind in ("max", "min", "argmax", "argmin"):
            is_max = kind.endswith("max")
            least, most = ("(-INFINITY)", "INFINITY") if is_float else _EXTREMES[computed]
            initial, sign = (least, ">") if is_max else (most, "<")
            if kind in ("max", "min"):
                return Reduction(name, [ctype], [initial], values, _max_or_min(sign, is_float)), [computed]
            arg = Reduction(
                name,
                [ctype, "i64"],
                [initial, "9223372036854775807L"],
                [*values, "(i64)r0_index"][:2],
                _arg(sign, is_float),
            )
            return arg, [computed, torch.int64]
        if kind in ("welford_reduce", "welford_combine"):
            merge = lambda a, b: _welford(ctype, a, b)  # noqa: E731
            return Reduction(name, [ctype] * 3, ["0"] * 3, values, merge), [computed] * 3
        raise NotImplementedError(f"reductions of kind {kind} in kernels that a device compiles")

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        if key in self.cse.reduction_cache:
            return self.cse.reduction_cache[key]
        values = list(map(str, value if isinstance(value, tuple) else (value,)))
        source = dtype if reduction_type in ("sum", "prod", "xor_sum") else src_dtype
        made, dtypes = self._reduction_of(str(reduction_type), source, values)
        self.note(source)
        self.reductions.append(made)
        results = []
        for accumulator, result_dtype in zip(made.fields, dtypes, strict=True):
            result = self.cse.newvar(dtype=result_dtype)
            self.outer_variables.add(result)
            self.after.append(self.declare(result, accumulator))
            results.append(result)
        answer: Any = results[-1] if len(results) < 3 else tuple(results)
        self.cse.reduction_cache[key] = answer
        return answer

    def scan(self, dtypes: Any, combine_fn: Any, values: Any) -> Any:
        carried, loop = [], []
        for dtype, value in zip(dtypes, values, strict=True):
            computed = upcast_compute_type(dtype)
            name = f"acc{self.accumulators}"
            self.accumulators += 1
            self.outer.writeline(f"{type_of(computed)} {name} = 0;")
            self.note(computed)
            carried.append(CSEVariable(name, ValueRanges.unknown(), computed, ()))
            loop.append(f"{name} = r0_index == 0 ? {value} : ")
        combined = OpsWrapper._unwrap(combine_fn(tuple(carried), tuple(values)))
        combined = combined if isinstance(combined, tuple) else (combined,)
        self.compute.writelines([f"{head}{result};" for head, result in zip(loop, combined, strict=True)])
        self.is_sequential = True
        return tuple(self.cse.generate(self.compute, f"({variable} + 0)", dtype=variable.dtype) for variable in carried)

    is_sequential = False

    def codegen_body(self) -> None:
        """What was written since the last time becomes a loop over what is reduced, or what goes between two loops."""
        outer, lines, stores = _taken(self.outer), _taken(self.loads, self.compute), _taken(self.stores)
        if not self.inside_reduction:
            # Whoever of a block is last must find what the first one found.
            self.parts.append([*outer, *lines, *(["TB_MEET"] if stores else []), *stores])
        elif lines or stores or self.reductions:
            self.parts.append(Loop(outer, lines + stores, self.reductions))
            self.parts.append(["TB_MEET", *self.after] if self.after else [])
        else:
            self.parts.append(outer)
        self.after, self.reductions = [], []
        self.cse.invalidate(OrderedSet(self.outer_variables))

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        """Declared where a loop uses it."""

    # ---- the loops around it ----

    def _entries(self, lines: Iterable[str], prefix: str) -> list[IterationRangesEntry]:
        names = set(re.findall(rf"\b{prefix}\d+\b", "\n".join(lines)))
        return [node for node in self.range_tree_nodes.values() if node.name in names]

    def _at(self, entry: IterationRangesEntry, index: str) -> str:
        """The entry's value where its root's index is ``index``."""
        text = self.index_to_str(entry.expr)
        return re.sub(rf"\b{entry.root.index_sym()}\b", index, text)

    def _declare_entries(self, entries: list[IterationRangesEntry], index: str) -> list[str]:
        return [f"const Index {entry.name} = {self._at(entry, index)};" for entry in entries]

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

    def _in_rows(self, entries: list[IterationRangesEntry], row: str, k: str) -> tuple[list[str], list[str]]:
        """The entries of a row that begins at ``row``; those of its element number ``k``."""
        once, each = [], []
        for entry in entries:
            if entry.divisor == 1:
                once.append(f"const Index {entry.name}_row = {self._at(entry, row)};")
                each.append(f"const Index {entry.name} = {entry.name}_row + {k};")
            else:
                once.append(f"const Index {entry.name} = {self._at(entry, row)};")
        return once, each

    def _pointwise(self, lines: list[str]) -> list[str]:
        root = self.range_trees[0]
        entries = self._entries(lines, root.prefix)
        length = self._row_length(entries, root.numel) if self.in_stretches else None
        independent = [] if self.scatters or self.in_order else ["TB_INDEPENDENT"]
        if length is None or length == root.numel:
            return [
                *(independent if self.in_stretches else []),
                *_block("TB_FOR(xindex, xnumel)", self._declare_entries(entries, "xindex"), lines),
            ]
        once, each = self._in_rows(entries, "(row * inner)", "k")
        return self._stretches(
            length, "inner", [*once, *independent, *_block("for (Index k = begin; k < stop; ++k)", each, lines)]
        )

    def _stretches(self, length: sympy.Expr, most: str, lines: list[str]) -> list[str]:
        """This block's part of xindex in pieces of a row: `begin` to `stop` of number `row`, at most `most` at once."""
        return [
            f"const Index inner = {self.index_to_str(length)};",
            "Index first = TB_FIRST(xnumel);",
            "const Index end = TB_LAST(xnumel);",
            *_block(
                "while (first < end)",
                [
                    "const Index row = first / inner;",
                    "const Index begin = first - row * inner;",
                    f"const Index room = inner - begin < {most} ? inner - begin : {most};",
                    "const Index stop = room < end - first ? begin + room : begin + (end - first);",
                ],
                lines,
                ["first += stop - begin;"],
            ),
        ]

    def _reduced_entries(self, lines: list[str]) -> list[IterationRangesEntry]:
        return self._entries(lines, "r0_")

    def _each_reduced(self, loop: Loop, start: str, step: str) -> list[str]:
        entries = self._declare_entries(self._reduced_entries(loop.lines), "r0_index")
        head = f"for (Index r0_index = {start}; r0_index < r0_numel; {step})"
        return _block(head, entries, loop.lines, self._steps(loop))

    @staticmethod
    def _steps(loop: Loop) -> list[str]:
        return [reduction.merge(reduction.fields, reduction.values) for reduction in loop.reductions]

    @staticmethod
    def _accumulators(loop: Loop) -> list[tuple[str, str, str]]:
        """Type, name and initial value of each."""
        return [each for r in loop.reductions for each in zip(r.types, r.fields, r.initial, strict=True)]

    def _with(self, part: Loop | list[str], written: Callable[[Loop], list[str]]) -> list[str]:
        return part if isinstance(part, list) else [*part.before, *written(part)]

    def _items_alone(self) -> list[str]:
        def written(loop: Loop) -> list[str]:
            return [
                *(f"{kind} {name} = {initial};" for kind, name, initial in self._accumulators(loop)),
                *self._each_reduced(loop, "0", "++r0_index"),
            ]

        return self._for_each_kept("TB_FOR(xindex, xnumel)", [self._with(part, written) for part in self.parts])

    def _for_each_kept(self, head: str, parts: list[list[str]]) -> list[str]:
        lines = [line for part in parts for line in part]
        return _block(head, self._declare_entries(self._entries(lines, "x"), "xindex"), lines)

    def _groups(self) -> list[str]:
        """A block for each element that is kept; its items reduce together."""
        arrays: list[str] = []

        def written(loop: Loop) -> list[str]:
            accumulators = self._accumulators(loop)
            arrays.extend(f"TB_LOCAL_ARRAY({kind}, {name}_shared, GROUP);" for kind, name, _ in accumulators)
            share = [f"{name}_shared[item] = {name};" for _, name, _ in accumulators]
            merges = [
                r.merge(r.fields, [f"{name}_shared[item + offset]" for name in r.fields]) for r in loop.reductions
            ]
            return [
                *(f"{kind} {name} = {initial};" for kind, name, initial in accumulators),
                *self._each_reduced(loop, "item", "r0_index += items"),
                *(["TB_BARRIER();"] if accumulators else []),
                *share,
                *(
                    _block(
                        "for (Index offset = items / 2; offset > 0; offset /= 2)",
                        ["TB_BARRIER();"],
                        _block("if (item < offset)", merges, share),
                    )
                    if accumulators
                    else []
                ),
                *(["TB_BARRIER();"] if accumulators else []),
                *(f"{name} = {name}_shared[0];" for _, name, _ in accumulators),
            ]

        parts = [self._with(part, written) for part in self.parts]
        return [
            *arrays,
            "const Index item = (Index)TB_LOCAL_ITEM, items = (Index)TB_BLOCK_ITEMS;",
            *self._for_each_kept("TB_FOR_BLOCKS(xindex, xnumel)", parts),
        ]

    def _rows(self) -> list[str]:
        """Processors: what is reduced is side by side, and has accumulators side by side."""

        def written(loop: Loop) -> list[str]:
            root = self.range_trees[-1]
            entries = self._reduced_entries(loop.lines)
            length = self._row_length(entries, root.numel)
            hint = V.graph.sizevars.optimization_hint(root.numel if length is None else length)
            if length is None or (loop.reductions and (self.is_sequential or hint < 2 * _LANES)):
                return [
                    *(f"{kind} {name} = {initial};" for kind, name, initial in self._accumulators(loop)),
                    *self._each_reduced(loop, "0", "++r0_index"),
                ]
            one_row = length == root.numel
            once, each = self._in_rows(entries, "row", "k")
            body = ["const Index r0_index = row + k;", *each, *loop.lines]
            if not loop.reductions:
                independent = [] if self.scatters or self.in_order or self.is_sequential else ["TB_INDEPENDENT"]
                inside = [*independent, *_block("for (Index k = 0; k < inner; ++k)", body)]
                return self._over_rows(length, one_row, [*once, *inside])
            body += self._steps(loop)
            return self._by_lanes(loop, length, one_row, once, body)

        return self._for_each_kept("TB_FOR(xindex, xnumel)", [self._with(part, written) for part in self.parts])

    def _over_rows(self, length: sympy.Expr, one_row: bool, lines: list[str]) -> list[str]:
        head = f"const Index inner = {self.index_to_str(length)};"
        if one_row:
            return _block("", [head, "const Index row = 0;"], lines)
        return _block("", [head], _block("for (Index row = 0; row < r0_numel; row += inner)", lines))

    def _by_lanes(self, loop: Loop, length: sympy.Expr, one_row: bool, once: list[str], body: list[str]) -> list[str]:
        accumulators = self._accumulators(loop)
        names = [name for _, name, _ in accumulators]
        each_lane = f"for (int l = 0; l < {_LANES}; ++l)"
        in_lane = self._subscripted(body, names, "[l]")
        numel = V.graph.sizevars.optimization_hint(self.range_trees[-1].numel)
        folds = numel > _LANES * _FOLD
        clear = [f"{each_lane} {name}[l] = {initial};" for _, name, initial in accumulators]
        fold = [
            f"{each_lane} {{ {r.merge([f'{name}_sum[l]' for name in r.fields], [f'{name}[l]' for name in r.fields])} }}"
            for r in loop.reductions
        ]
        halve = [
            f"for (int l = 0; l < offset; ++l) {{ "
            f"{r.merge([f'{n}_v[l]' for n in r.fields], [f'{n}_v[l + offset]' for n in r.fields])} }}"
            for r in loop.reductions
        ]
        whole = _block(
            f"for (; j + {_LANES} <= pause; j += {_LANES})", _block(each_lane, ["const Index k = j + l;"], in_lane)
        )
        rest = _block("for (Index k = j; k < stop; ++k)", ["const int l = (int)(k - j);"], in_lane)
        pause = f"stop - j > {_LANES * _FOLD} ? j + {_LANES * _FOLD} : stop" if folds else "stop"
        if folds:
            steps = _block(f"while (j + {_LANES} <= stop)", [f"const Index pause = {pause};"], whole, fold, clear)
        else:
            steps = ["const Index pause = stop;", *whole]
        row = [*once, "const Index stop = inner;", "Index j = 0;", *steps, *rest]
        lines = [
            *(f"{kind} {name}_v[{_LANES}];" for kind, name, _ in accumulators),
            *(self._subscripted(clear, names, "_v")),
            *([f"{kind} {name}_sum[{_LANES}];" for kind, name, _ in accumulators] if folds else []),
            *([f"{each_lane} {name}_sum[l] = {initial};" for _, name, initial in accumulators] if folds else []),
            *self._subscripted(self._over_rows(length, one_row, row), names, "_v"),
            *(
                [
                    f"{each_lane} {{ {r.merge([f'{n}_v[l]' for n in r.fields], [f'{n}_sum[l]' for n in r.fields])} }}"
                    for r in loop.reductions
                ]
                if folds
                else []
            ),
            *_block(f"for (int offset = {_LANES // 2}; offset > 0; offset /= 2)", halve),
            *(f"{kind} {name} = {name}_v[0];" for kind, name, _ in accumulators),
        ]
        return lines

    @staticmethod
    def _subscripted(lines: Iterable[str], names: list[str], subscript: str) -> list[str]:
        pattern = re.compile(rf"\b({'|'.join(names)})\b") if names else None
        return [pattern.sub(rf"\1{subscript}", line) for line in lines] if pattern else list(lines)

    def _columns(self, length: sympy.Expr) -> list[str]:
        """Processors: neighbours are kept, so that a tile of them is reduced side by side."""
        each_kept = "for (Index k = begin; k < stop; ++k)"
        arrays: list[str] = []
        kept: list[str] = []  # names of what each of the tile has

        def declared(lines: list[str]) -> list[str]:
            result = []
            for line in lines:
                if found := re.fullmatch(r"(\w+) (tmp\d+|acc\d+) = (.*)", line):
                    arrays.append(f"{found[1]} {found[2]}[{_TILE}];")
                    kept.append(found[2])
                    line = f"{found[2]} = {found[3]}"
                result.append(line)
            return result

        pieces: list[tuple[list[str] | None, list[str]]] = []  # what a pass over what is reduced declares
        for part in self.parts:
            if isinstance(part, list):
                pieces.append((None, declared(part)))
                continue
            initial = []
            for kind, name, value in self._accumulators(part):
                arrays.append(f"{kind} {name}[{_TILE}];")
                kept.append(name)
                initial.append(f"{name} = {value};")
            pieces.append((None, declared(part.before) + initial))
            entries = self._declare_entries(self._reduced_entries(part.lines), "r0_index")
            pieces.append((entries, part.lines + self._steps(part)))
        once, each = self._in_rows(
            self._entries([line for _, lines in pieces for line in lines], "x"), "(row * inner)", "k"
        )
        independent = [] if self.scatters or self.in_order else ["TB_INDEPENDENT"]
        body: list[str] = []
        for declares, lines in pieces:
            across = _block(each_kept, each, self._subscripted(lines, kept, "[k - begin]")) if lines else []
            if declares is not None:
                head = "for (Index r0_index = 0; r0_index < r0_numel; ++r0_index)"
                across = _block(head, declares, independent, across)
            body += across
        return self._stretches(length, str(_TILE), [*once, *arrays, *body])

    def _reduces_columns(self) -> sympy.Expr | None:
        """The length of rows of what is kept, if neighbours there are reduced side by side."""
        if not self.in_stretches:
            return None
        root, reduced = self.range_trees[0], self.range_trees[-1]
        lines = [line for part in self.parts for line in (part if isinstance(part, list) else part.before + part.lines)]
        length = self._row_length(self._entries(lines, "x"), root.numel)
        hint = V.graph.sizevars.optimization_hint
        if length is None or hint(length) < _SHORT_ROW:
            return None
        if hint(reduced.numel) < 2 * _LANES and hint(root.numel) > hint(reduced.numel):
            return length
        columns = sum(kept and not reduced for kept, reduced in self.strides)
        return length if columns > sum(reduced for _, reduced in self.strides) else None

    def _loops(self) -> list[str]:
        if not self.features.is_reduction():
            return self._pointwise([line for part in self.parts if isinstance(part, list) for line in part])
        if self.in_stretches:
            length = self._reduces_columns()
            return self._rows() if length is None else self._columns(length)
        return self._groups() if self.in_groups else self._items_alone()

    @property
    def in_groups(self) -> bool:
        """Whether the items of a block reduce together."""
        if self.in_stretches or not self.features.is_reduction() or self.is_sequential or self.in_order:
            return False
        hint = V.graph.sizevars.optimization_hint
        kept, reduced = hint(self.range_trees[0].numel), hint(self.range_trees[-1].numel)
        columns = sum(k and not r for k, r in self.strides) > sum(r for _, r in self.strides)
        return reduced >= _LANES and not (columns and kept >= 4096)

    # ---- the text, and its call ----

    def _pointers(self) -> list[tuple[str, str]]:
        """What the graph calls each buffer, and the kernel."""
        definitions, calls, _, _ = self.args.python_argdefs()
        sizes = {str(size) for size in self.args.sizevars.values()}
        return [(call, d.name) for d, call in zip(definitions, calls, strict=True) if d.name not in sizes]

    def _dynamic_trees(self) -> list[IterationRangesRoot]:
        return [tree for tree in self.range_trees if not isinstance(tree.numel, (sympy.Integer, int))]

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        for number, part in enumerate(self.parts):
            if isinstance(part, list):
                self.parts[number] = _resolved(part)
            else:
                part.lines = _resolved(part.lines)
                part.before = _resolved(part.before) + self._invariant(part)
        loops = self._loops()
        pointers = self._pointers()
        numbers = [f"{tree.prefix}numel" for tree in self._dynamic_trees()]
        head = []
        for tree in self.range_trees:
            if f"{tree.prefix}numel" not in numbers:
                head.append(f"const Index {tree.prefix}numel = {tree.numel};")
        numbers += map(str, self.args.sizevars.values())
        head += [f"const Index {each} = (Index)args.n[{i + 1}].i64_;" for i, each in enumerate(numbers)]
        for buffer, scalar in self.host_scalars.items():
            dtype = V.graph.get_dtype(buffer)
            kind = "f64" if dtype.is_floating_point else "i64"
            if kind == "f64":
                self.note(torch.float64)
            numbers.append(scalar)
            head.append(f"const {kind} {scalar} = args.n[{len(numbers)}].{kind}_;")
        lines = [
            *(f"#define {inner} p{i}" for i, (_, inner) in enumerate(pointers)),
            f"#define error_cell p{len(pointers)}",
            *(_IN_TURNS if self.in_stretches else []),
            f"#define TB_MEET {'TB_BARRIER();' if self.in_groups else ''}",
            *map(self._exchange, self.atomics),
            "TB_KERNEL(graph_kernel) {",
            *(f"  {line}" for line in head + loops),
            "} TB_END",
        ]
        body = "\n".join(lines).replace("\\", "\\\\")
        options = {
            "is_double": self.is_double,
            "is_32_bit": self.get_index_dtype_as_torch_dtype() == torch.int32,
            "num_pointers": len(pointers),
            "num_numbers": len(numbers),
            "may_fail": self.may_fail,
            "in_groups": self.in_groups,
        }
        texts = " ".join(["philox", "graph", *sorted(self.texts)])
        keywords = ", ".join(f"{key}={value}" for key, value in options.items())
        return f"kernel({self.device}, KERNEL_NAME, '{texts}', '''\n{body}\n''', {keywords})"

    def _invariant(self, loop: Loop) -> list[str]:
        """Takes declarations out of a loop that are the same for all its elements."""
        once: list[str] = []
        varying = {str(entry.name) for entry in self._reduced_entries(loop.lines)} | {"r0_index"}
        lines: list[str] = []
        changed = set(re.findall(r"\b(tmp\d+) = ", "\n".join(x for x in loop.lines if x.startswith("if "))))
        for line in loop.lines:
            found = re.fullmatch(r"\w+ (tmp\d+) = (.*);", line)
            names = set(re.findall(r"[a-z]\w*", found[2])) if found else set()
            stays = not found or found[1] in changed or names & (varying | changed) or "TB_LOAD" in line
            if stays or any(name.startswith("acc") for name in names):
                lines.append(line)
                if found:
                    varying.add(found[1])
            else:
                once.append(line)
        loop.lines = lines
        return once

    @staticmethod
    def _exchange(dtype: torch.dtype) -> str:
        name = name_of(dtype)
        if dtype.itemsize > 2:
            return f"TB_ADD_BY_EXCHANGE({name}, {8 * dtype.itemsize}, {name})"
        to, of = {"f16": ("tb_f32_of_half", "tb_half_of_f32"), "bf16": ("TB_F32_OF_BF16", "tb_round_bf16")}[name]
        return f"TB_ADD_TO_HALF({name}, {to}, {of})"

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)

        def numel(tree: IterationRangesRoot) -> str:
            if isinstance(tree.numel, (sympy.Integer, sympy.Symbol, int)):
                return self.pexpr(sympy.sympify(tree.numel))
            return str(wrapper.generate_numel_expr(name, tree).inner)

        cost = 0 if self.in_stretches and self.in_order else max(1, len(self.parts))
        reduced = " * ".join([str(cost), *(numel(tree) for tree in self.range_trees if tree.is_reduction)])
        arguments = [
            numel(self.range_trees[0]),
            reduced,
            *(outer for outer, _ in self._pointers()),
            *map(numel, self._dynamic_trees()),
            *map(self.pexpr, self.args.sizevars),
            *(f"{buffer}.item()" for buffer in self.host_scalars),
        ]
        wrapper.writeline(f"{name}({', '.join(arguments)})")
