import itertools
import sys
from collections.abc import Iterator

import torch
from _numbers import close, upload

dtype = getattr(torch, sys.argv[1])


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def matrices(rows: int, columns: int) -> Iterator[torch.Tensor]:
    yield draw(rows, columns)
    yield draw(columns, rows).t()
    yield draw(rows, columns + 3)[:, 1 : columns + 1]
    yield draw(columns, rows + 5)[:, 2 : rows + 2].t()


# Rows and columns are taken as they lie.
for m, k, n in [(3, 4, 5), (1, 7, 2), (6, 1, 1), (17, 33, 9), (4, 160, 8)]:
    for a, b in itertools.product(matrices(m, k), matrices(k, n)):
        close(torch.mm(upload(a), upload(b)), a.double() @ b.double())
    for c in matrices(m, n):
        for beta, alpha in [(1, 1), (0.5, -2), (0, 3)]:
            wanted = torch.addmm(c.double(), a.double(), b.double(), beta=beta, alpha=alpha)
            if c.is_contiguous() or beta == 0:
                close(torch.addmm(upload(c), upload(a), upload(b), beta=beta, alpha=alpha), wanted)
    for bias in (draw(n), draw(1, n + 1)[:, 1:]):
        wanted = torch.addmm(bias.double(), a.double(), b.double(), alpha=2)
        close(torch.addmm(upload(bias), upload(a), upload(b), alpha=2), wanted)

for batch in (1, 3):
    a, b, c = draw(batch, 5, 6), draw(batch, 7, 6).transpose(1, 2), draw(batch, 5, 7)
    for first in [a, a.transpose(0, 1).contiguous().transpose(0, 1), a[:1].expand(batch, 5, 6)]:
        close(torch.bmm(upload(first), upload(b)), torch.bmm(first.double(), b.double()))
        wanted = torch.baddbmm(c.double(), first.double(), b.double(), beta=0.5, alpha=2)
        close(torch.baddbmm(upload(c), upload(first), upload(b), beta=0.5, alpha=2), wanted)

# Results are written where `out` lies, and what is there does not count for a beta of 0.
a, b = draw(5, 6), draw(6, 7)
for there in map(upload, matrices(5, 7)):
    torch.mm(upload(a), upload(b), out=there)
    close(there, a.double() @ b.double())
nothing = torch.full((5, 7), float("nan"), dtype=dtype)
close(torch.addmm(upload(nothing), upload(a), upload(b), beta=0), a.double() @ b.double())
