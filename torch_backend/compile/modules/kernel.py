"""One kernel of a compiled graph: what inductor wants computed for each element, the text of that, and its call."""
# ruff: noqa: D102, D107 - most methods are SIMDKernel's

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSE, CSEVariable, PythonPrinter, is_buffer_removed
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot, SIMDKernel
from torch._inductor.utils import get_bounds_index_expr, upcast_compute_type
from torch._inductor.virtualized import OpsWrapper, V, ops
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.value_ranges import ValueRanges

from torch_backend import _C
from torch_backend.compile.modules.dtypes import literal, name_of, type_of
from torch_backend.compile.modules.indices import IndexPrinter, ValuePrinter
from torch_backend.compile.modules.loop_ir import (
    Declaration,
    Expression,
    Index,
    Load,
    Node,
    Statement,
    expression,
    texts_in,
    write,
)
from torch_backend.compile.modules.loops import Loops
from torch_backend.compile.modules.operations import Operations
from torch_backend.compile.modules.passes import Part, Reduced, drop_unused
from torch_backend.compile.modules.reductions import Reduction, reduction_of

_IN_TURNS = (
    "#ifdef __OPENCL_VERSION__",
    "#undef TB_INDEPENDENT",
    '#define TB_INDEPENDENT _Pragma("clang loop vectorize_width(16) interleave_count(4)")',
    '#pragma clang diagnostic ignored "-Wpass-failed"',  # where functions are called that have no vectors
    "#endif",
)
"""Drivers for processors do not take steps of several iterations in turns where a loop is long, and wait for each."""


class TypedCSE(CSE[CSEVariable, Expression]):
    """Variables with their types; those outside the loops of reductions stay when the loops end."""

    def generate(self, buffer: Any, expr: Any, **options: Any) -> CSEVariable:
        key: Any = expr
        if not isinstance(expr, Expression):
            return super().generate(buffer, expr, **options)
        found = self.try_get(key)
        if found is None:
            found = self.newvar(options.get("bounds", ValueRanges.unknown()), options["dtype"], options.get("shape"))
            found.use_count = 1
            self.put(key, found)
            buffer.append(V.kernel.declaration(found, expr))
            if not V.kernel.inside_reduction or buffer is V.kernel.outer:
                V.kernel.outer_variables.add(found)
        else:
            found.use_count += 1
        return found


class _Handler(Operations):
    """What takes more than its operands."""

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> Any:
        kernel = V.kernel
        value = expression("{0}", Index(kernel.rename_indexing(kernel.prepare_indexing(expr)), ValuePrinter))
        source = torch.int64 if expr.is_integer else torch.float32
        variable = kernel.cse.generate(kernel.compute, value, bounds=get_bounds_index_expr(expr), dtype=source)
        return ops.to_dtype(variable, dtype)

    value_expr = index_expr

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], Any], other: Any) -> Any:
        with V.kernel.mask_loads(mask, other) as both:
            result = body()
        result = OpsWrapper._unwrap(result)
        return OpsWrapper._unwrap(ops.where(both, result, ops.constant(other, result.dtype)))

    @staticmethod
    def frexp(x: CSEVariable) -> Any:
        results = (("tb_mantissa((T){0})", x.dtype), ("(i32)tb_exponent((T){0})", torch.int32))
        cse, lines = V.kernel.cse, V.kernel.compute
        return tuple(cse.generate(lines, Expression(form, (x,), ("floating",)), dtype=of) for form, of in results)


class ModuleKernel(SIMDKernel[CSEVariable]):
    """Inductor's kernel over flat ranges, ``xindex`` of what is kept and ``r0_index`` of what is reduced."""

    overrides = _Handler
    cse: TypedCSE
    loads: list[Node]  # where inductor has lines
    compute: list[Node]
    stores: list[Node]
    suffix = ";"
    sexpr = kexpr = staticmethod(IndexPrinter().doprint)
    pexpr = staticmethod(PythonPrinter().doprint)
    index_dtype = "tl.int64"  # of indices as values, which PyTorch's propagation of dtypes asks for by this name

    def __init__(self, tiling: dict[str, sympy.Expr], **options: Any) -> None:
        super().__init__(tiling, **options)
        self.cse = TypedCSE(self.newvar_prefix, self.suffix)
        self.device = V.graph.get_current_device_or_throw().index or 0
        self.in_stretches = _C.runs_in_stretches(self.device)
        self.atomics: OrderedSet[torch.dtype] = OrderedSet()
        self.loads, self.compute, self.stores = [], [], []
        self.outer: list[Node] = []  # before the loop that is being written
        self.after: list[Node] = []  # that loop
        self.outer_variables: OrderedSet[CSEVariable] = OrderedSet()
        self.reductions: list[Reduction] = []  # of that loop
        self.parts: list[Part] = []
        self.accumulators = 0
        self.is_double = self.may_fail = self.in_order = self.scatters = False
        self.host_scalars: dict[str, str] = {}
        self.strides: list[tuple[bool, bool]] = []

    # ---- what is computed ----

    def declaration(self, variable: CSEVariable, value: Expression) -> Declaration:
        """Of ``variable``."""
        assert variable.dtype is not None
        self.note(variable.dtype)
        return Declaration(type_of(variable.dtype), str(variable), value)

    def index(self, expr: sympy.Expr) -> Index:
        """``expr`` with what the kernel calls the sizes in it."""
        return Index(self.rename_indexing(expr))

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
            return self.cse.generate(self.loads, expression(f"(({type_of(dtype)}){{0}})", number), dtype=computed)
        place = self.args.input(name)
        index = self.prepare_indexing(index)
        value: Expression = Load(f"TB_LOAD_{name_of(dtype)}({{0}}, {{1}})", (place, self.index(index)))
        if self._load_mask:
            other = literal(self._load_other or 0, computed)
            value = expression("({0} ? {1} : {2})", self._load_mask, value, other)
        self._note_strides(index)
        return self.cse.generate(self._lines_for(index), value, dtype=computed)

    def _lines_for(self, index: sympy.Expr) -> list[Node]:
        """Where that goes which needs ``index``."""
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
        if mode is None:
            form = f"TB_STORE_{name_of(dtype)}({{0}}, {{1}}, {{2}});"
        elif mode == "atomic_add":
            form = self._atomic_add(dtype)
        else:
            raise NotImplementedError(f"stores of kind {mode} in kernels that a device compiles")
        self.note(dtype)
        self._note_strides(index)
        self.scatters |= self.is_indirect_indexing(index)
        self.stores.append(Statement(expression(form, place, self.index(index), value), buffer=name))

    def _atomic_add(self, dtype: torch.dtype) -> str:
        name = name_of(dtype)
        if self.in_stretches:  # one block, in order, as the CPU adds
            self.in_order = True
            return f"TB_STORE_{name}({{0}}, {{1}}, TB_LOAD_{name}({{0}}, {{1}}) + {{2}});"
        self.in_order = not self.inside_reduction
        if dtype == torch.int32:
            return "TB_ATOMIC_ADD_i32((TB_GLOBAL i32*){0} + {1}, {2});"
        if dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
            raise NotImplementedError(f"atomic additions of {dtype}")
        self.atomics.add(dtype)
        return f"tb_atomic_add_{name}({{0}}, {{1}}, {{2}});"

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        place = self.args.output(name)
        before, self.inside_reduction = self.inside_reduction, False
        index = self.prepare_indexing(index)
        self.inside_reduction = before
        dtype = V.graph.get_dtype(name)
        self.note(dtype)
        store = expression(f"TB_STORE_{name_of(dtype)}({{0}}, {{1}}, {{2}});", place, self.index(index), value)
        self.after.append(Statement(store, buffer=name))

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        self.may_fail = True
        expr = self.prepare_indexing(expr)
        wrong = " || ".join(["{0} < 0"] * lower + ["{0} >= {1}"] * upper)
        if self._load_mask:
            wrong = f"{{2}} && ({wrong})"
        is_variable = expr.is_Symbol and self.is_indirect_indexing(expr)
        instead = "{0} = 0;" if is_variable else "continue;"
        report = "tb_report(error_cell, TB_INDEX_OUT_OF_RANGE, args.n[0].i64_, {0}, {1});"
        check = expression(
            f"if ({wrong}) {{{{ {report} {instead} }}}}", self.index(expr), self.index(size), self._load_mask
        )
        self._lines_for(expr).append(Statement(check, sets=str(expr) if is_variable else ""))

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        raise NotImplementedError("assertions in kernels that a device compiles")

    # ---- reductions ----

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        if key in self.cse.reduction_cache:
            return self.cse.reduction_cache[key]
        source = dtype if reduction_type in ("sum", "prod", "xor_sum") else src_dtype
        values = list(value) if isinstance(value, tuple) else [value]
        made = reduction_of(str(reduction_type), self._accumulator(), source, values)
        self.note(source)
        self.reductions.append(made)
        results = []
        for accumulator, result_dtype in zip(made.fields(), made.results, strict=True):
            result = self.cse.newvar(dtype=result_dtype)
            self.outer_variables.add(result)
            self.after.append(self.declaration(result, expression("{0}", accumulator)))
            results.append(result)
        answer: Any = results[-1] if len(results) < 3 else tuple(results)
        self.cse.reduction_cache[key] = answer
        return answer

    def scan(self, dtypes: Any, combine_fn: Any, values: Any) -> Any:
        carried = []
        for dtype in dtypes:
            before = CSEVariable(self._accumulator(), ValueRanges.unknown(), upcast_compute_type(dtype), ())
            self.outer.append(self.declaration(before, expression("0")))
            carried.append(before)
        combined = OpsWrapper._unwrap(combine_fn(tuple(carried), tuple(values)))
        combined = combined if isinstance(combined, tuple) else (combined,)
        for before, value, after in zip(carried, values, combined, strict=True):
            first_or_after = expression("{0} = r0_index == 0 ? {1} : {2};", before, value, after)
            self.compute.append(Statement(first_or_after, sets=str(before)))
        self.is_sequential = True
        return tuple(self.cse.generate(self.compute, expression("({0} + 0)", x), dtype=x.dtype) for x in carried)

    def _accumulator(self) -> str:
        self.accumulators += 1
        return f"acc{self.accumulators - 1}"

    is_sequential = False

    def codegen_body(self) -> None:
        """What was written since the last time becomes a loop over what is reduced, or what goes between two loops."""
        outer, lines, stores = self.outer, self.loads + self.compute, self.stores
        if not self.inside_reduction:
            # Whoever of a block is last must find what the first one found.
            self.parts.append([*outer, *lines, *(["TB_MEET"] if stores else []), *stores])
        elif lines or stores or self.reductions:
            self.parts.append(Reduced(outer, lines + stores, self.reductions))
            meets = any(isinstance(node, Statement) for node in self.after)  # else it stores nothing
            self.parts.append([*(["TB_MEET"] if meets else []), *self.after])
        else:
            self.parts.append(outer)
        self.outer, self.loads, self.compute, self.stores, self.after, self.reductions = [], [], [], [], [], []
        self.cse.invalidate(OrderedSet(self.outer_variables))

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        """Declared where a loop uses it."""

    # ---- the text, and its call ----

    def _pointers(self) -> list[tuple[str, str]]:
        """What the graph calls each buffer, and the kernel."""
        definitions, calls, _, _ = self.args.python_argdefs()
        sizes = {str(size) for size in self.args.sizevars.values()}
        return [(call, d.name) for d, call in zip(definitions, calls, strict=True) if d.name not in sizes]

    def _dynamic_trees(self) -> list[IterationRangesRoot]:
        return [tree for tree in self.range_trees if not isinstance(tree.numel, (sympy.Integer, int))]

    def _loops(self) -> Loops:
        entries = list(self.range_tree_nodes.values())

        def stored(lines: list[Node]) -> list[Node]:  # of some buffers nothing may be left
            return [line for line in lines if not (isinstance(line, Statement) and is_buffer_removed(line.buffer))]

        parts: list[Part] = []
        for part in self.parts:
            if isinstance(part, Reduced):
                part = Reduced(stored(part.before), stored(part.lines), part.reductions)
                part.hoist(entries)
                parts.append(part)
            else:
                parts.append(stored(part))
        drop_unused(parts)
        return Loops(
            parts,
            self.range_trees,
            entries,
            self.index,
            self.strides,
            reduces=self.features.is_reduction(),
            in_stretches=self.in_stretches,
            is_independent=not (self.scatters or self.in_order),
            is_sequential=self.is_sequential,
            is_ordered=self.in_order,
            block_items=_C.block_items(self.device),
            processors=max(_C.device_properties(self.device).multi_processor_count, 1),
        )

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        loops = self._loops()
        nodes = loops.around()
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
            f"#define TB_MEET {'TB_BARRIER();' if loops.group else ''}",
            *map(self._adding, self.atomics),
            "TB_KERNEL(graph_kernel) {",
            *(f"  {line}" for line in head + write(nodes)),
            "} TB_END",
        ]
        body = "\n".join(lines).replace("\\", "\\\\")
        options = {
            "is_double": self.is_double,
            "is_32_bit": self.get_index_dtype_as_torch_dtype() == torch.int32,
            "num_pointers": len(pointers),
            "num_numbers": len(numbers),
            "may_fail": self.may_fail,
            "per_block": loops.per_block,
        }
        texts = " ".join(["philox", "whole", "integral", "graph", *sorted(texts_in(nodes))])
        keywords = ", ".join(f"{key}={value}" for key, value in options.items())
        return f"kernel({self.device}, KERNEL_NAME, '{texts}', '''\n{body}\n''', {keywords})"

    @staticmethod
    def _adding(dtype: torch.dtype) -> str:
        name = name_of(dtype)
        if dtype.itemsize > 2:
            return f"TB_ADD_TO_WORD({name}, {8 * dtype.itemsize}, {name})"
        to, of = {"f16": ("tb_f32_of_half", "tb_half_of_f32"), "bf16": ("TB_F32_OF_BF16", "tb_round_bf16")}[name]
        return f"TB_ADD_TO_HALF({name}, {to}, {of})"

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper: Any = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        buffers = [outer for outer, _ in self._pointers()]
        cost = 0 if self.in_stretches and self.in_order else max(1, len(self.parts))
        reduced = [tree for tree in self.range_trees if tree.is_reduction]
        if V.graph.cpp_wrapper:
            dynamic = [tree.numel for tree in self._dynamic_trees()]
            cost_expr = sympy.Mul(cost, *(tree.numel for tree in reduced))
            numbers = [*dynamic, *self.args.sizevars]
            wrapper.launch(name, self.range_trees[0].numel, cost_expr, buffers, numbers, list(self.host_scalars))
            return

        def numel(tree: IterationRangesRoot) -> str:
            if isinstance(tree.numel, (sympy.Integer, sympy.Symbol, int)):
                return self.pexpr(sympy.sympify(tree.numel))
            return str(wrapper.generate_numel_expr(name, tree).inner)

        arguments = [
            numel(self.range_trees[0]),
            " * ".join([str(cost), *map(numel, reduced)]),
            *buffers,
            *map(numel, self._dynamic_trees()),
            *map(self.pexpr, self.args.sizevars),
            *(f"{buffer}.item()" for buffer in self.host_scalars),
        ]
        wrapper.writeline(f"{name}({', '.join(arguments)})")
