"""How fast kernels are that move much memory, or compute much."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_conformance.measure.timing import Work

ELEMENTS = 64 << 20
ROWS = 16384
HALF = torch.bfloat16


def works(device: str, scale: float) -> Iterator[tuple[str, int, Work]]:
    """Name, the bytes that a call reads and writes at least, and one call.

    ``scale``: of sizes, 1 for a large device.
    """
    flat, rows = max(1 << 12, int(ELEMENTS * scale)), max(8, int(ROWS * scale))
    side = max(64, int(8192 * scale**0.5) // 8 * 8)
    images = max(1, int(256 * scale))

    def values(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    generator = torch.Generator().manual_seed(0)
    a, b = values(flat), values(flat)
    a16, b16 = a.to(HALF), b.to(HALF)
    out, out16 = torch.empty_like(a), torch.empty_like(a16)
    table, weight = values(rows, 1024), values(1024)
    table16, weight16 = table.to(HALF), weight.to(HALF)
    sums = torch.zeros_like(table)
    square = values(side, side)
    heads = values(max(1, int(64 * scale)), 12, 256, 64).to(HALF)
    index = torch.randint(0, rows, (rows,), generator=generator).to(device)
    mask = a > 0
    image, kernel, channels = values(images, 64, 56, 56), values(64, 64, 3, 3), values(64)

    yield "add, float32", 3 * a.nbytes, lambda: torch.add(a, b, out=out)
    yield "add, bfloat16", 3 * a16.nbytes, lambda: torch.add(a16, b16, out=out16)
    yield "gelu, bfloat16", 2 * a16.nbytes, lambda: F.gelu(a16)
    yield "float32 to bfloat16", a.nbytes + a16.nbytes, lambda: a.to(HALF)
    yield "add of a row, bfloat16", 2 * table16.nbytes, lambda: table16 + weight16
    yield "where", 3 * a.nbytes + mask.nbytes, lambda: torch.where(mask, a, b)
    yield "fill_", a.nbytes, lambda: out.fill_(1.5)
    yield "copy_", 2 * a.nbytes, lambda: out.copy_(a)
    yield "sum", a.nbytes, lambda: a.sum()
    yield "sum of rows", table.nbytes, lambda: table.sum(1)
    yield "sum of columns", table.nbytes, lambda: table.sum(0)
    yield "argmax of rows", table.nbytes, lambda: table.argmax(1)
    yield "softmax of 1024", 2 * table.nbytes, lambda: table.softmax(1)
    yield "softmax of 64", 2 * table.nbytes, lambda: table.view(-1, 64).softmax(1)
    yield "layer_norm of 1024, bfloat16", 2 * table16.nbytes, lambda: F.layer_norm(table16, (1024,), weight16, weight16)
    yield "transposed copy", 2 * square.nbytes, lambda: square.t().contiguous()
    yield "permuted copy, bfloat16", 2 * heads.nbytes, lambda: heads.transpose(1, 2).contiguous()
    yield "cat", 4 * table.nbytes, lambda: torch.cat((table, table), 1)
    yield "cumsum of rows", 2 * table.nbytes, lambda: table.cumsum(1)
    yield "cumsum of a long line", a.nbytes // 8, lambda: a[: flat // 16].cumsum(0)
    yield "sort of rows", 0, lambda: table.sort(1)
    yield "topk of rows", 0, lambda: table.topk(50)
    yield "nonzero", 0, lambda: mask.nonzero()
    yield "embedding", 2 * table.nbytes, lambda: F.embedding(index, table)
    yield "index_add_", 3 * table.nbytes, lambda: sums.index_add_(0, index, table)
    yield "cross_entropy", table.nbytes, lambda: F.cross_entropy(table, index % 1024)
    yield "normal_", a.nbytes, lambda: out.normal_()
    yield "dropout, bfloat16", 2 * a16.nbytes, lambda: F.dropout(a16, 0.1)
    yield "mm, float32", 0, lambda: square @ square
    square16 = square.to(HALF)
    yield "mm, bfloat16", 0, lambda: square16 @ square16
    yield "attention, bfloat16", 0, lambda: F.scaled_dot_product_attention(heads, heads, heads)
    yield (
        "causal attention, bfloat16",
        0,
        lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
    )
    yield "conv2d", 0, lambda: F.conv2d(image, kernel, padding=1)
    yield "batch_norm", 0, lambda: F.batch_norm(image, None, None, channels, channels, training=True)
    yield "max_pool2d", 0, lambda: F.max_pool2d(image, 2)
