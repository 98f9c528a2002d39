"""Philox 4x32-10 with numbers of Python's own, and what compiled kernels make of it (codegen/kernels/preludes)."""

from collections.abc import Sequence

MASK = 0xFFFFFFFF


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Four 32-bit numbers of a counter of four words and a key of two."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & MASK, first >> 32 ^ c[3] ^ k[1], first & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def numbers(seed: int, offset: int, n: int, k: int = 0) -> list[int]:
    """Those of the counter {offset / 4 + k, n}."""
    low, high = offset // 4 + k, n
    return philox([low & MASK, low >> 32, high & MASK, high >> 32], [seed & MASK, seed >> 32])


def words(seed: int, offset: int, count: int) -> list[int]:
    """What elements of 32 bits take, in their order."""
    return [word for n in range((count + 3) // 4) for word in numbers(seed, offset, n)][:count]


def wide_words(seed: int, offset: int, count: int) -> list[int]:
    """What elements of 64 bits take."""
    four = [numbers(seed, offset, n) for n in range((count + 1) // 2)]
    return [high << 32 | low for each in four for high, low in (each[:2], each[2:])][:count]
