"""Dtypes in the dialect of codegen/kernels."""

import math
from typing import Any

import torch

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
