"""Inductor's elementwise operations in the dialect of codegen/kernels, which has types and no overloading."""
# ruff: noqa: D102 - the methods are OpsHandler's

import math
from collections.abc import Callable
from typing import Any, cast

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.utils import get_bounds_index_expr
from torch._inductor.virtualized import OpsWrapper, V, ops
from torch.utils._sympy.printers import ExprPrinter

_NAMES = {
    torch.bool: "b8",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}


def name_of(dtype: torch.dtype) -> str:
    """What TB_LOAD_ and TB_STORE_ end in. Raises NotImplementedError if kernels have no such dtype."""
    if dtype not in _NAMES:
        raise NotImplementedError(f"kernels that a device compiles have no {dtype}")
    return _NAMES[dtype]


def type_of(dtype: torch.dtype) -> str:
    """The type of a variable: f32 for the half types, i32 for bool, where it is 0 or 1."""
    name = name_of(dtype)
    return {"b8": "i32", "f16": "f32", "bf16": "f32"}.get(name, name)


def literal(value: Any, dtype: torch.dtype) -> str:
    """``value`` as a constant of the type of ``dtype``."""
    if not dtype.is_floating_point:
        number = int(value)
        if number == -(1 << 63):
            return "(-9223372036854775807L - 1)"
        return f"({number}L)" if dtype == torch.int64 else f"({number})"
    number = float(value)
    if math.isinf(number):
        text = "INFINITY" if number > 0 else "(-INFINITY)"
        return f"((f64){text})" if dtype == torch.float64 else text
    if math.isnan(number):
        return "((f64)NAN)" if dtype == torch.float64 else "NAN"
    return f"({number!r})" if dtype == torch.float64 else f"({number!r}f)"


class IndexPrinter(ExprPrinter):
    """Whole numbers; what is known to be no less than zero is divided as C does."""

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = expr.args
        x_text, divisor_text = self.doprint(x), self.doprint(divisor)
        if x.is_nonnegative and divisor.is_positive:
            return f"(({x_text}) / ({divisor_text}))"
        return f"tb_int_floor_quotient({x_text}, {divisor_text})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        text = f"({self.doprint(x)})"
        if divisor != 1:
            text = f"({text} / ({self.doprint(divisor)}))"
        return f"({text} % ({self.doprint(modulus)}))"

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return f"tb_int_modulo({self.doprint(expr.args[0])}, {self.doprint(expr.args[1])})"

    _print_PythonMod = _print_Mod

    def _print_CleanDiv(self, expr: sympy.Expr) -> str:
        return self._print_FloorDiv(expr)

    def _choose(self, expr: sympy.Expr, sign: str) -> str:
        texts = [f"(i64)({self.doprint(each)})" for each in expr.args]
        result = texts[0]
        for text in texts[1:]:
            result = f"({result} {sign} {text} ? {result} : {text})"
        return result

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._choose(expr, "<")

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._choose(expr, ">")

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, x, y = (self.doprint(each) for each in expr.args)
        return f"(({condition}) ? ({x}) : ({y}))"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return f"tb_int_power({self.doprint(expr.args[0])}, {self.doprint(expr.args[1])})"

    def _print_Pow(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if exponent.is_Integer and exponent > 0:
            return "(" + " * ".join([f"({self.doprint(base)})"] * int(exponent)) + ")"
        return f"pow((T)({self.doprint(base)}), (T)({self.doprint(exponent)}))"

    def _print_Abs(self, expr: sympy.Expr) -> str:
        text = self.doprint(expr.args[0])
        return f"(({text}) < 0 ? -({text}) : ({text}))"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"(T)({self.doprint(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        return f"((T)({self.doprint(expr.args[0])}) / (T)({self.doprint(expr.args[1])}))"

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)trunc((T)({self.doprint(expr.args[0])}))"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)floor((T)({self.doprint(expr.args[0])}))"

    _print_floor = _print_FloorToInt

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)ceil((T)({self.doprint(expr.args[0])}))"

    _print_ceiling = _print_CeilToInt

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)rint((T)({self.doprint(expr.args[0])}))"

    def _print_OpaqueUnaryFn_sqrt(self, expr: sympy.Expr) -> str:
        return f"sqrt((T)({self.doprint(expr.args[0])}))"

    def _print_Float(self, expr: sympy.Expr) -> str:
        return str(int(expr)) if expr.is_integer else f"TC({float(expr)!r})"


class ValuePrinter(IndexPrinter):
    """Indices that are values: in 64 bits, though offsets may need but 32."""

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return f"((i64){expr.name})"


_print_value = ValuePrinter().doprint


def _is_float(*values: Any) -> bool:
    return any(isinstance(value, float) or getattr(value, "dtype", torch.int64).is_floating_point for value in values)


def _call(name: str) -> Callable[..., str]:
    return staticmethod(lambda *values: f"{name}({', '.join(map(str, values))})")


def _of_float(name: str) -> Callable[..., str]:
    """What leaves whole numbers as they are."""
    return staticmethod(lambda x: f"{name}({x})" if _is_float(x) else f"{x}")


def _in_t(name: str, text: str, casts: tuple[str, ...] = ()) -> Callable[..., str]:
    """A function of codegen/kernels/functions/``text``.h, which takes and returns T."""

    def write(*values: Any) -> str:
        V.kernel.texts.add(text)
        arguments = (f"({casts[i] if i < len(casts) else 'T'}){value}" for i, value in enumerate(values))
        return f"{name}({', '.join(arguments)})"

    return staticmethod(write)


def _in_graph(name: str, sign: str = "") -> Callable[..., str]:
    """What functions/graph.h has for values of float32."""
    return staticmethod(lambda x: f"{'' if x.dtype == torch.float64 else 'tb_graph_'}{name}({sign}{x})")


_exp_of_negative = _in_graph("exp", "-")


def _either(floating: str, integral: str) -> Callable[..., str]:
    return staticmethod(lambda x, y: (floating if _is_float(x, y) else integral).format(x=x, y=y))


class Operations(OpOverrides):
    """The type of each result is what its dtype says: C converts to it where the variable is declared."""

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> str:
        return literal(value, dtype)

    @staticmethod
    def to_dtype(
        x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> str:
        if dtype == torch.bool:
            return f"({x} != 0)"
        if dtype in (torch.float16, torch.bfloat16):
            return f"((f32){x})" if use_compute_types else f"TB_ROUND_{name_of(dtype)}((f32){x})"
        if dtype.itemsize < 4 and _is_float(x):
            return f"(({type_of(dtype)})(i64){x})"
        return f"(({type_of(dtype)}){x})"

    @staticmethod
    def to_dtype_bitcast(x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        bits = {
            torch.float32: "tb_bits_f32({})",
            torch.float16: "tb_half_of_f32({})",
            torch.bfloat16: "tb_round_bf16({})",
        }.get(src_dtype, "{}")
        value = {
            torch.float32: "tb_f32_of_bits((u32){})",
            torch.float16: "tb_f32_of_half((u16){})",
            torch.bfloat16: "tb_f32_of_bits((u32)(u16){} << 16)",
        }.get(dtype, f"({type_of(dtype)}){{}}")
        if torch.float64 in (dtype, src_dtype) and dtype != src_dtype:
            raise NotImplementedError(f"views of {src_dtype} as {dtype} within a kernel")
        return value.format(bits.format(x))

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> Any:
        kernel = V.kernel
        text = _print_value(kernel.rename_indexing(kernel.prepare_indexing(expr)))
        source = torch.int64 if expr.is_integer else torch.float32
        variable = kernel.cse.generate(kernel.compute, text, bounds=get_bounds_index_expr(expr), dtype=source)
        return ops.to_dtype(variable, dtype)

    value_expr = index_expr

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], Any], other: Any) -> Any:
        with V.kernel.mask_loads(mask, other) as both:
            result = body()
        result = OpsWrapper._unwrap(result)
        return OpsWrapper._unwrap(ops.where(both, result, ops.constant(other, result.dtype)))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> str:
        return f"({condition} ? {x} : {y})"

    @staticmethod
    def load_seed(name: str, offset: Any) -> Any:
        return ops.load(name, sympy.Integer(offset))

    rand = _call("tb_graph_rand")
    randn = _call("tb_graph_randn")
    randint64 = _call("tb_graph_randint")

    maximum = _either("({x} != {x} || {x} > {y} ? {x} : {y})", "({x} > {y} ? {x} : {y})")
    minimum = _either("({x} != {x} || {x} < {y} ? {x} : {y})", "({x} < {y} ? {x} : {y})")
    truediv = _either("({x} / {y})", "((T){x} / (T){y})")
    truncdiv = _either("trunc({x} / {y})", "tb_int_quotient({x}, {y})")
    floordiv = _either("floor({x} / {y})", "tb_int_floor_quotient({x}, {y})")
    mod = _either("fmod({x}, {y})", "tb_int_fmod({x}, {y})")
    fmod = mod
    pow = _either("pow({x}, {y})", "tb_int_power({x}, {y})")

    @staticmethod
    def remainder(x: CSEVariable, y: CSEVariable) -> str:
        if _is_float(x, y):
            V.kernel.texts.add("floating")
            return f"tb_remainder((T){x}, (T){y})"
        return f"tb_int_modulo({x}, {y})"

    @staticmethod
    def bitwise_not(x: CSEVariable) -> str:
        return f"({x} == 0)" if x.dtype == torch.bool else f"(~{x})"

    @staticmethod
    def bitwise_left_shift(x: CSEVariable, y: CSEVariable) -> str:
        bits = 8 * cast(torch.dtype, x.dtype).itemsize
        return f"({y} < 0 || {y} >= {bits} ? 0 : ({type_of(cast(torch.dtype, x.dtype))})((u64){x} << {y}))"

    @staticmethod
    def bitwise_right_shift(x: CSEVariable, y: CSEVariable) -> str:
        dtype = cast(torch.dtype, x.dtype)
        last = 8 * dtype.itemsize - dtype.is_signed
        return f"({x} >> ({y} < 0 || {y} >= {last} ? {last} : {y}))"

    lshift, rshift = bitwise_left_shift, bitwise_right_shift
    logical_and = staticmethod(lambda x, y: f"(({x} != 0) & ({y} != 0))")
    logical_or = staticmethod(lambda x, y: f"(({x} != 0) | ({y} != 0))")
    logical_xor = staticmethod(lambda x, y: f"(({x} != 0) != ({y} != 0))")
    logical_not = staticmethod(lambda x: f"({x} == 0)")
    sign = staticmethod(lambda x: f"(({x} > 0) - ({x} < 0))")
    abs = staticmethod(lambda x: f"fabs({x})" if _is_float(x) else f"({x} < 0 ? -{x} : {x})")
    signbit = staticmethod(lambda x: f"(signbit({x}) != 0)" if _is_float(x) else f"({x} < 0)")
    isnan = staticmethod(lambda x: f"({x} != {x})")
    isinf = staticmethod(lambda x: f"(fabs({x}) == INFINITY)" if _is_float(x) else "0")
    relu = staticmethod(lambda x: f"({x} > 0 || {x} != {x} ? {x} : 0)")
    sigmoid = staticmethod(lambda x: f"(1 / (1 + {_exp_of_negative(x)}))")
    reciprocal = staticmethod(lambda x: f"(1 / {x})")
    rsqrt = staticmethod(lambda x: f"(1 / sqrt({x}))")
    ldexp = staticmethod(lambda x, n: f"ldexp({x}, (int){n})")
    floor, ceil, trunc, round = _of_float("floor"), _of_float("ceil"), _of_float("trunc"), _of_float("rint")
    exp2, expm1 = _call("exp2"), _call("expm1")
    log, log2, log10, log1p = _in_graph("log"), _call("log2"), _call("log10"), _in_graph("log1p")
    sin, cos, tan = _call("sin"), _call("cos"), _call("tan")
    asin, acos, atan, atan2 = _call("asin"), _call("acos"), _call("atan"), _call("atan2")
    sinh, cosh = _call("sinh"), _call("cosh")
    asinh, acosh, atanh = _call("asinh"), _call("acosh"), _call("atanh")
    exp, tanh, erf = _in_graph("exp"), _in_graph("tanh"), _in_graph("erf")
    erfc, lgamma, sqrt = _call("erfc"), _call("lgamma"), _call("sqrt")
    hypot, copysign, nextafter = _call("hypot"), _call("copysign"), _call("nextafter")
    i0, i0e, i1, i1e = (_in_t(f"tb_{name}", "bessel") for name in ("i0", "i0e", "i1", "i1e"))
    modified_bessel_i0, modified_bessel_i1 = i0, i1
    erfinv, ndtri = _in_t("tb_erfinv", "normal"), _in_t("tb_ndtri", "normal")
    ndtr = staticmethod(lambda x: f"(TC(0.5) * erfc((T){x} * TC(-0.70710678118654752440)))")
    digamma, zeta = _in_t("tb_digamma", "gamma"), _in_t("tb_zeta", "gamma")
    polygamma = _in_t("tb_polygamma", "gamma", ("i64",))

    @staticmethod
    def frexp(x: CSEVariable) -> Any:
        kernel = V.kernel
        kernel.texts.add("floating")
        mantissa = kernel.cse.generate(kernel.compute, f"tb_mantissa((T){x})", dtype=x.dtype)
        return mantissa, kernel.cse.generate(kernel.compute, f"(i32)tb_exponent((T){x})", dtype=torch.int32)


Operations._initialize_pointwise_overrides("halide")  # names that are left raise that they are not implemented
