"""Operators that put elements elsewhere."""

import pytest
import torch

X = torch.arange(60.0).reshape(3, 4, 5)
LAYOUTS = [lambda x: x, lambda x: x.permute(2, 0, 1), lambda x: x[:, ::2, 1:]]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex64, torch.complex128]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_moves(check, dtype, layout):
    x = layout(X.to(dtype))
    for dim in (0, 1, -1):
        check(lambda a, b: torch.cat([a, b, a], dim), x, x.clone(), exact=True)  # noqa: B023
        check(lambda a, b: torch.stack([a, b], dim), x, x.clone(), exact=True)  # noqa: B023
        check(lambda a: a.roll(2, dim), x, exact=True)  # noqa: B023
        check(lambda a: a.flip(dim), x, exact=True)  # noqa: B023
    check(lambda a: a.roll((1, -1, 7), (0, 1, 0)), x, exact=True)
    check(lambda a: a.roll(-3), x, exact=True)
    check(lambda a: a.flip((0, 2)), x, exact=True)
    for diagonal in (-1, 0, 2, 1 << 40):
        check(lambda a: a.tril(diagonal), x, exact=True)  # noqa: B023
        check(lambda a: a.triu_(diagonal), x.clone(), exact=True)  # noqa: B023


def test_what_cat_joins(check):
    check(lambda *x: torch.cat(x), *(torch.full((i % 3, 2), float(i)) for i in range(50)), exact=True)
    check(lambda a, b: torch.cat([a, b]), torch.tensor([1, 2]), torch.tensor([0.5]), exact=True)
    check(lambda a, b: torch.cat([a, b]), torch.tensor([]), X, exact=True)
    check(lambda a, b: torch.cat([a, b], out=torch.empty(6, 4, 5, device=a.device)), X, X, exact=True)
    check(lambda a, b: torch.cat([a, b], 1), *(torch.randn(300, 200) for _ in range(2)), exact=True)
    check(lambda a: torch.nn.functional.pad(a, (1, 2, 0, 1), value=3.0), X, exact=True)
    check(lambda a: a.flip(0).roll(1), torch.tensor(2.0), exact=True)
