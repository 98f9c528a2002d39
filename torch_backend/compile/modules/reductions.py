"""What a loop keeps from element to element: kinds of reductions in the dialect of codegen/kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.utils import upcast_compute_type

from torch_backend.compile.modules.dtypes import type_of
from torch_backend.compile.modules.loop_ir import Block, Expression, Node, Statement, expression

_Merge = Callable[[list[Any], list[Any]], Expression]


@dataclass
class Reduction:
    """Fields ``name``_0, ..., and what adds an element's values, or other fields, to them."""

    name: str
    types: list[str]
    initial: list[str]
    values: list[Any]
    results: list[torch.dtype]
    merged: _Merge

    def fields(self, suffix: str = "") -> list[str]:
        """Names of the fields, or of those like them."""
        return [f"{self.name}_{i}{suffix}" for i in range(len(self.types))]

    def merge(self, suffix: str, other: str) -> Statement:
        """Adds the fields that ``other`` ends to those that ``suffix`` does."""
        return Statement(self.merged(self.fields(suffix), self.fields(other)))

    def step(self, suffix: str = "") -> Statement:
        """Adds the values of an element."""
        return Statement(self.merged(self.fields(suffix), self.values))

    def at_once(self, each: str, count: int, subscripts: Mapping[str, str]) -> list[Node]:
        """Adds the values of ``count`` elements, of which ``each`` is the loop; []: no better than one by one."""
        return []


class _Moments(Reduction):
    """Mean, sum of squared distances from it, and count: those of several elements take one division, not several."""

    def at_once(self, each: str, count: int, subscripts: Mapping[str, str]) -> list[Node]:
        kind, mean, squares = self.types[0], f"{self.name}_mean", f"{self.name}_squares"
        add = Statement(expression("{0} += {1};", mean, *self.values))
        form = f"{{{{ const {kind} tb_d = {{1}} - {{0}}; {{2}} += tb_d * tb_d; }}}}"
        square = Statement(expression(form, mean, *self.values, squares))
        return [
            f"{kind} {mean} = 0, {squares} = 0;",
            "TB_UNROLL",
            Block(each, [add], subscripts),
            f"{mean} /= {count};",
            "TB_UNROLL",
            Block(each, [square], subscripts),
            Statement(self.merged(self.fields(), [mean, squares, f"({kind}){count}"])),
        ]


def _max_or_min(sign: str, is_float: bool) -> _Merge:
    nan = "{1} != {1} || " if is_float else ""
    return lambda a, b: expression(f"{{0}} = {nan}{{1}} {sign} {{0}} ? {{1}} : {{0}};", a[0], b[0])


def _arg(sign: str, is_float: bool) -> _Merge:
    # The first of those that are equal; NaN goes before everything.
    better, equal = f"{{1}} {sign} {{0}}", "{1} == {0}"
    if is_float:
        better = f"({better} || ({{1}} != {{1}} && {{0}} == {{0}}))"
        equal = f"({equal} || ({{1}} != {{1}} && {{0}} != {{0}}))"
    form = f"if ({better} || ({equal} && {{3}} < {{2}})) {{{{ {{0}} = {{1}}; {{2}} = {{3}}; }}}}"
    return lambda a, b: expression(form, a[0], b[0], a[1], b[1])


def _welford(kind: str) -> _Merge:
    element = (
        f"{{{{ const {kind} tb_d = {{3}} - {{0}}; {{2}} += 1; {{0}} += tb_d / {{2}}; "
        "{1} += tb_d * ({3} - {0}); }}"
    )
    others = (
        f"{{{{ const {kind} tb_n = {{2}} + {{5}}, tb_d = {{3}} - {{0}}, tb_w = tb_n == 0 ? 0 : {{5}} / tb_n; "
        "{0} += tb_d * tb_w; {1} += {4} + tb_d * (tb_d * tb_w * {2}); {2} = tb_n; }}"  # of none: no overflow
    )
    return lambda a, b: expression(element if len(b) == 1 else others, *a, *b)


_SIMPLE = {"sum": ("0", "{0} += {1};"), "prod": ("1", "{0} *= {1};"), "xor_sum": ("0", "{0} ^= {1};")}
_EXTREMES = {
    torch.bool: ("0", "1"),
    torch.uint8: ("0", "255"),
    torch.int8: ("(-128)", "127"),
    torch.int16: ("(-32768)", "32767"),
    torch.int32: ("(-2147483647 - 1)", "2147483647"),
    torch.int64: ("(-9223372036854775807L - 1)", "9223372036854775807L"),
}


def reduction_of(kind: str, name: str, dtype: torch.dtype, values: list[Any]) -> Reduction:
    """What inductor calls ``kind``, of values of ``dtype``. Raises NotImplementedError if there is none."""
    computed = upcast_compute_type(dtype)
    is_float = computed.is_floating_point
    ctype = type_of(computed)
    if kind in _SIMPLE:
        initial, form = _SIMPLE[kind]
        return Reduction(name, [ctype], [initial], values, [computed], lambda a, b: expression(form, a[0], b[0]))
    if kind == "any":
        any_of: _Merge = lambda a, b: expression("{0} |= {1} != 0;", a[0], b[0])  # noqa: E731
        return Reduction(name, ["i32"], ["0"], values, [torch.bool], any_of)
    if kind in ("max", "min", "argmax", "argmin"):
        least, most = ("(-INFINITY)", "INFINITY") if is_float else _EXTREMES[computed]
        initial, sign = (least, ">") if kind.endswith("max") else (most, "<")
        if kind in ("max", "min"):
            return Reduction(name, [ctype], [initial], values, [computed], _max_or_min(sign, is_float))
        initials = [initial, "9223372036854775807L"]
        values = [*values, expression("(i64){0}", "r0_index")][:2]
        return Reduction(name, [ctype, "i64"], initials, values, [computed, torch.int64], _arg(sign, is_float))
    if kind in ("welford_reduce", "welford_combine"):
        made = _Moments if len(values) == 1 else Reduction
        return made(name, [ctype] * 3, ["0"] * 3, values, [computed] * 3, _welford(ctype))
    raise NotImplementedError(f"reductions of kind {kind} in kernels that a device compiles")
