"""Inductor's elementwise operations in the dialect of codegen/kernels, which has types and no overloading."""
# ruff: noqa: D102 - the methods are OpsHandler's

import math
from collections.abc import Callable
from typing import Any, cast

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.virtualized import ops

from torch_backend.compile.modules.loop_ir import Expression, expression

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


def _is_float(*values: Any) -> bool:
    return any(isinstance(value, float) or getattr(value, "dtype", torch.int64).is_floating_point for value in values)


def _of(form: str, *texts: str) -> Callable[..., Expression]:
    return staticmethod(lambda *values: Expression(form, values, texts))


def _call(name: str, count: int = 1) -> Callable[..., Expression]:
    return _of(f"{name}({', '.join(f'{{{i}}}' for i in range(count))})")


def _either(floating: str, integral: str) -> Callable[..., Expression]:
    return staticmethod(lambda *values: expression(floating if _is_float(*values) else integral, *values))


def _of_float(name: str) -> Callable[..., Expression]:
    """What leaves whole numbers as they are."""
    return _either(f"{name}({{0}})", "{0}")


def _in_t(name: str, text: str) -> Callable[..., Expression]:
    """A function of codegen/kernels/functions/``text``.h, which takes and returns T."""
    return _of(f"{name}((T){{0}})", text)


def _in_graph(form: str) -> Callable[..., Expression]:
    """What functions/graph.h has for values of float32, whose names begin with what the ``{{1}}`` of ``form`` is."""
    return staticmethod(lambda x: expression(form.format("{0}", "" if x.dtype == torch.float64 else "tb_graph_"), x))


class Operations(OpOverrides):
    """The type of each result is what its dtype says: C converts to it where the variable is declared."""

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> Expression:
        return expression(literal(value, dtype))

    @staticmethod
    def to_dtype(
        x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> Expression:
        if dtype == torch.bool:
            return expression("({0} != 0)", x)
        if dtype in (torch.float16, torch.bfloat16):
            return expression("((f32){0})" if use_compute_types else f"TB_ROUND_{name_of(dtype)}((f32){{0}})", x)
        if dtype.itemsize < 4 and _is_float(x):
            return expression(f"(({type_of(dtype)})(i64){{0}})", x)
        return expression(f"(({type_of(dtype)}){{0}})", x)

    @staticmethod
    def to_dtype_bitcast(x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype) -> Expression:
        bits = {
            torch.float32: "tb_bits_f32({0})",
            torch.float16: "tb_half_of_f32({0})",
            torch.bfloat16: "tb_round_bf16({0})",
        }.get(src_dtype, "{0}")
        value = {
            torch.float32: "tb_f32_of_bits((u32){0})",
            torch.float16: "tb_f32_of_half((u16){0})",
            torch.bfloat16: "tb_f32_of_bits((u32)(u16){0} << 16)",
        }.get(dtype, f"({type_of(dtype)}){{0}}")
        if torch.float64 in (dtype, src_dtype) and dtype != src_dtype:
            raise NotImplementedError(f"views of {src_dtype} as {dtype} within a kernel")
        return expression(value, expression(bits, x))

    @staticmethod
    def load_seed(name: str, offset: Any) -> Any:
        return ops.load(name, sympy.Integer(offset))

    rand, randn, randint64 = _call("tb_graph_rand", 2), _call("tb_graph_randn", 2), _call("tb_graph_randint", 4)

    add, sub, mul, neg = _of("{0} + {1}"), _of("{0} - {1}"), _of("{0} * {1}"), _of("-{0}")
    eq, ne, lt = _of("{0} == {1}"), _of("{0} != {1}"), _of("{0} < {1}")
    gt, le, ge = _of("{0} > {1}"), _of("{0} <= {1}"), _of("{0} >= {1}")
    bitwise_and, bitwise_or, bitwise_xor = and_, or_, xor = _of("{0} & {1}"), _of("{0} | {1}"), _of("{0} ^ {1}")
    where = _of("({0} ? {1} : {2})")
    maximum = _either("({0} != {0} || {0} > {1} ? {0} : {1})", "({0} > {1} ? {0} : {1})")
    minimum = _either("({0} != {0} || {0} < {1} ? {0} : {1})", "({0} < {1} ? {0} : {1})")
    truediv = _either("({0} / {1})", "((T){0} / (T){1})")
    truncdiv = _either("trunc({0} / {1})", "tb_int_quotient({0}, {1})")
    floordiv = _either("floor({0} / {1})", "tb_int_floor_quotient({0}, {1})")
    mod = fmod = _either("fmod({0}, {1})", "tb_int_fmod({0}, {1})")
    pow = _either("pow({0}, {1})", "tb_int_power({0}, {1})")

    @staticmethod
    def remainder(x: CSEVariable, y: CSEVariable) -> Expression:
        if _is_float(x, y):
            return Expression("tb_remainder((T){0}, (T){1})", (x, y), ("floating",))
        return expression("tb_int_modulo({0}, {1})", x, y)

    @staticmethod
    def bitwise_not(x: CSEVariable) -> Expression:
        return expression("({0} == 0)" if x.dtype == torch.bool else "(~{0})", x)

    @staticmethod
    def bitwise_left_shift(x: CSEVariable, y: CSEVariable) -> Expression:
        dtype = cast(torch.dtype, x.dtype)
        form = f"({{1}} < 0 || {{1}} >= {8 * dtype.itemsize} ? 0 : ({type_of(dtype)})((u64){{0}} << {{1}}))"
        return expression(form, x, y)

    @staticmethod
    def bitwise_right_shift(x: CSEVariable, y: CSEVariable) -> Expression:
        dtype = cast(torch.dtype, x.dtype)
        last = 8 * dtype.itemsize - dtype.is_signed
        return expression(f"({{0}} >> ({{1}} < 0 || {{1}} >= {last} ? {last} : {{1}}))", x, y)

    lshift, rshift = bitwise_left_shift, bitwise_right_shift
    logical_and, logical_or = _of("(({0} != 0) & ({1} != 0))"), _of("(({0} != 0) | ({1} != 0))")
    logical_xor, logical_not = _of("(({0} != 0) != ({1} != 0))"), _of("({0} == 0)")
    sign = _of("(({0} > 0) - ({0} < 0))")
    abs = _either("fabs({0})", "({0} < 0 ? -{0} : {0})")
    signbit = _either("(signbit({0}) != 0)", "({0} < 0)")
    isnan = _of("({0} != {0})")
    isinf = _either("(fabs({0}) == INFINITY)", "0")
    relu = _of("({0} > 0 || {0} != {0} ? {0} : 0)")
    sigmoid = _in_graph("(1 / (1 + {1}exp(-{0})))")
    reciprocal, rsqrt = _of("(1 / {0})"), _of("(1 / sqrt({0}))")
    ldexp = _of("ldexp({0}, (int){1})")
    floor, ceil, trunc, round = _of_float("floor"), _of_float("ceil"), _of_float("trunc"), _of_float("rint")
    exp2, expm1 = _call("exp2"), _call("expm1")
    log, log2, log10, log1p = _in_graph("{1}log({0})"), _call("log2"), _call("log10"), _in_graph("{1}log1p({0})")
    sin, cos, tan = _call("sin"), _call("cos"), _call("tan")
    asin, acos, atan, atan2 = _call("asin"), _call("acos"), _call("atan"), _call("atan2", 2)
    sinh, cosh = _call("sinh"), _call("cosh")
    asinh, acosh, atanh = _call("asinh"), _call("acosh"), _call("atanh")
    exp, tanh, erf = _in_graph("{1}exp({0})"), _in_graph("{1}tanh({0})"), _in_graph("{1}erf({0})")
    erfc, lgamma, sqrt = _call("erfc"), _call("lgamma"), _call("sqrt")
    hypot, copysign, nextafter = _call("hypot", 2), _call("copysign", 2), _call("nextafter", 2)
    i0, i0e, i1, i1e = (_in_t(f"tb_{name}", "bessel") for name in ("i0", "i0e", "i1", "i1e"))
    modified_bessel_i0, modified_bessel_i1 = i0, i1
    erfinv, ndtri = _in_t("tb_erfinv", "normal"), _in_t("tb_ndtri", "normal")
    ndtr = _of("(TC(0.5) * erfc((T){0} * TC(-0.70710678118654752440)))")
    digamma, zeta = _in_t("tb_digamma", "gamma"), _of("tb_zeta((T){0}, (T){1})", "gamma")
    polygamma = _of("tb_polygamma((i64){0}, (T){1})", "gamma")


Operations._initialize_pointwise_overrides("halide")  # names that are left raise that they are not implemented
