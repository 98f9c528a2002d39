"""Small whole numbers as a device stores them, in every dtype."""

import math

from torch_backend.abi import TORCH_DTYPES, DTypeCode, tb_dtype

_FLOAT_FORMATS = {
    "float16": (10, 15),
    "bfloat16": (7, 127),
    "float32": (23, 127),
    "float64": (52, 1023),
    "float8_e4m3fn": (3, 7),
    "float8_e4m3fnuz": (3, 8),
    "float8_e5m2": (2, 15),
    "float8_e5m2fnuz": (2, 16),
}
"""Bits of the mantissa, and bias of the exponent."""

_COMPLEX_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


def is_complex(name: str) -> bool:
    """Whether a dtype has an imaginary part."""
    return name in _COMPLEX_PARTS


def element(name: str) -> tb_dtype:
    """The dtype of a name of torch."""
    code, bits = TORCH_DTYPES[name]
    return tb_dtype(code, bits, 1)


def stored(name: str, value: complex) -> bytes:
    """A number with whole parts that the dtype holds exactly, as little-endian bytes."""
    if name in _COMPLEX_PARTS:
        part = _COMPLEX_PARTS[name]
        return stored(part, value.real) + stored(part, value.imag)
    code, bits = TORCH_DTYPES[name]
    number = int(value.real)
    if code in (DTypeCode.INT, DTypeCode.UINT, DTypeCode.BOOL):
        return number.to_bytes(bits // 8, "little", signed=number < 0)
    mantissa_bits, bias = _FLOAT_FORMATS[name]
    pattern = 0
    if number != 0:
        exponent = math.frexp(abs(number))[1] - 1
        mantissa = (abs(number) << mantissa_bits >> exponent) - (1 << mantissa_bits)
        pattern = ((exponent + bias) << mantissa_bits) + mantissa
    return (pattern | (number < 0) << (bits - 1)).to_bytes(bits // 8, "little")
