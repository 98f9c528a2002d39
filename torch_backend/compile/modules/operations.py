"""Inductor's elementwise operations in the dialect of codegen/kernels, which has types and no overloading."""
# ruff: noqa: D102 - the methods are OpsHandler's

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.virtualized import ops

from torch_backend.compile.modules.dtypes import literal, name_of, type_of
from torch_backend.compile.modules.formulas import formula
from torch_backend.compile.modules.loop_ir import Expression, expression


def _is_float(*values: Any) -> bool:
    return any(isinstance(value, float) or getattr(value, "dtype", torch.int64).is_floating_point for value in values)


def _of(form: str) -> Callable[..., Expression]:
    return staticmethod(lambda *values: expression(form, *values))


def _either(floating: str, integral: str) -> Callable[..., Expression]:
    return staticmethod(lambda *values: expression(floating if _is_float(*values) else integral, *values))


FORMULAS: list[str] = []
"""Overloads whose formulas are taken."""


def _formula(overload: str) -> Callable[..., Expression]:
    FORMULAS.append(overload)
    return staticmethod(lambda *values: formula(overload, *values))


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

    # Not operators of PyTorch's, or such whose formula has more to it: alpha, the dtype that is computed in.
    rand, randn = _of("tb_graph_rand({0}, {1})"), _of("tb_graph_randn({0}, {1})")
    randint64 = _of("tb_graph_randint({0}, {1}, {2}, {3})")
    add, sub, ldexp = _of("{0} + {1}"), _of("{0} - {1}"), _of("ldexp({0}, (int){1})")
    truediv = _either("{0} / {1}", "(T){0} / (T){1}")
    truncdiv = _either("trunc({0} / {1})", "tb_quotient({0}, {1})")
    isinf = _either("fabs({0}) == INFINITY", "0")
    ndtr = _of("TC(0.5) * erfc((T){0} * TC(-0.70710678118654752440))")
    nextafter = _of("nextafter({0}, {1})")  # of float32, which half types are here

    mul, neg, abs, sign = map(_formula, ("mul.out", "neg.out", "abs.out", "sign.out"))
    eq, ne, lt = map(_formula, ("eq.Tensor_out", "ne.Tensor_out", "lt.Tensor_out"))
    le, gt, ge = map(_formula, ("le.Tensor_out", "gt.Tensor_out", "ge.Tensor_out"))
    bitwise_and = and_ = _formula("bitwise_and.Tensor_out")
    bitwise_or = or_ = _formula("bitwise_or.Tensor_out")
    bitwise_xor = xor = _formula("bitwise_xor.Tensor_out")
    bitwise_left_shift = lshift = _formula("bitwise_left_shift.Tensor_out")
    bitwise_right_shift = rshift = _formula("bitwise_right_shift.Tensor_out")
    bitwise_not, logical_not = _formula("bitwise_not.out"), _formula("logical_not.out")
    logical_and, logical_or, logical_xor = (_formula(f"logical_{name}.out") for name in ("and", "or", "xor"))
    where, maximum, minimum = map(_formula, ("where.self_out", "maximum.out", "minimum.out"))
    floordiv, remainder = map(_formula, ("floor_divide.out", "remainder.Tensor_out"))
    mod = fmod = _formula("fmod.Tensor_out")
    pow, hypot, copysign = map(_formula, ("pow.Tensor_Tensor_out", "hypot.out", "copysign.out"))
    signbit, isnan, relu = map(_formula, ("signbit.out", "isnan", "relu"))
    sigmoid, reciprocal, sqrt, rsqrt = map(_formula, ("sigmoid.out", "reciprocal.out", "sqrt.out", "rsqrt.out"))
    floor, ceil, trunc, round = map(_formula, ("floor.out", "ceil.out", "trunc.out", "round.out"))
    exp, exp2, expm1 = map(_formula, ("exp.out", "exp2.out", "expm1.out"))
    log, log2, log10, log1p = map(_formula, ("log.out", "log2.out", "log10.out", "log1p.out"))
    sin, cos, tan = map(_formula, ("sin.out", "cos.out", "tan.out"))
    asin, acos, atan, atan2 = map(_formula, ("asin.out", "acos.out", "atan.out", "atan2.out"))
    sinh, cosh, tanh = map(_formula, ("sinh.out", "cosh.out", "tanh.out"))
    asinh, acosh, atanh = map(_formula, ("asinh.out", "acosh.out", "atanh.out"))
    erf, erfc, erfinv, ndtri = map(_formula, ("erf.out", "erfc.out", "erfinv.out", "special_ndtri.out"))
    lgamma, digamma = map(_formula, ("lgamma.out", "digamma.out"))
    polygamma, zeta = map(_formula, ("polygamma.out", "special_zeta.out"))
    i0, i0e, i1, i1e = map(_formula, ("i0.out", "special_i0e.out", "special_i1.out", "special_i1e.out"))
    modified_bessel_i0, modified_bessel_i1 = i0, i1


Operations._initialize_pointwise_overrides("halide")  # names that are left raise that they are not implemented
