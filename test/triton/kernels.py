"""Kernels as Triton's users write them."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, inside) + scale * tl.load(y + places, inside), inside)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + places, places < columns, other=-float("inf"))
    exponents = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + places, exponents / tl.sum(exponents, 0), places < columns)


@triton.jit
def matmul(a, b, out, rows, columns, inner, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, inner, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + m[:, None] * inner + k[None, :], (m[:, None] < rows) & (k[None, :] < inner), other=0.0)
        right = tl.load(b + k[:, None] * columns + n[None, :], (k[:, None] < inner) & (n[None, :] < columns), other=0.0)
        total += tl.dot(left, right)
    where = out + m[:, None] * columns + n[None, :]
    tl.store(where, total.to(out.dtype.element_ty), (m[:, None] < rows) & (n[None, :] < columns))


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"])
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, 2 * tl.load(x + places, places < n), places < n)
