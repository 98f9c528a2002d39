"""Sets of dtypes: what the bits of a dtype_mask mean, with the names that PyTorch has for them."""

from collections.abc import Iterable

from torch_backend.abi.constants import DTypeCode
from torch_backend.abi.structs import DTYPE_MASK_WORDS

_BITS_PER_CODE = 8
_BITS_PER_WORD = 64

TORCH_DTYPES: dict[str, tuple[DTypeCode, int]] = {
    "bool": (DTypeCode.BOOL, 8),
    "uint8": (DTypeCode.UINT, 8),
    "int8": (DTypeCode.INT, 8),
    "int16": (DTypeCode.INT, 16),
    "int32": (DTypeCode.INT, 32),
    "int64": (DTypeCode.INT, 64),
    "uint16": (DTypeCode.UINT, 16),
    "uint32": (DTypeCode.UINT, 32),
    "uint64": (DTypeCode.UINT, 64),
    "float16": (DTypeCode.FLOAT, 16),
    "bfloat16": (DTypeCode.BFLOAT, 16),
    "float32": (DTypeCode.FLOAT, 32),
    "float64": (DTypeCode.FLOAT, 64),
    "complex32": (DTypeCode.COMPLEX, 32),
    "complex64": (DTypeCode.COMPLEX, 64),
    "complex128": (DTypeCode.COMPLEX, 128),
    "float8_e4m3fn": (DTypeCode.FLOAT8_E4M3FN, 8),
    "float8_e4m3fnuz": (DTypeCode.FLOAT8_E4M3FNUZ, 8),
    "float8_e5m2": (DTypeCode.FLOAT8_E5M2, 8),
    "float8_e5m2fnuz": (DTypeCode.FLOAT8_E5M2FNUZ, 8),
}
"""The dtypes that torch_backend can name to a device: name in torch to DLPack's code and the bits of an element."""


def mask_bit(code: int, bits: int) -> int:
    """The number of the bit that stands for a dtype, TB_DTYPE_BIT."""
    size_log2 = next((i for i, limit in enumerate((8, 16, 32, 64)) if bits <= limit), 4)
    return code * _BITS_PER_CODE + size_log2


def dtypes_in(mask: Iterable[int]) -> frozenset[str]:
    """What a device's dtype_mask holds, as torch names it. All zero means every dtype."""
    words = list(mask)
    if not any(words):
        return frozenset(TORCH_DTYPES)
    return frozenset(
        name
        for name, (code, bits) in TORCH_DTYPES.items()
        if words[mask_bit(code, bits) // _BITS_PER_WORD] >> (mask_bit(code, bits) % _BITS_PER_WORD) & 1
    )


def mask_of(names: Iterable[str]) -> list[int]:
    """The dtype_mask that holds these dtypes of torch."""
    words = [0] * DTYPE_MASK_WORDS
    for name in names:
        bit = mask_bit(*TORCH_DTYPES[name])
        words[bit // _BITS_PER_WORD] |= 1 << (bit % _BITS_PER_WORD)
    return words
