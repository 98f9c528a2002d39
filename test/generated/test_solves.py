"""Triangular systems, and Cholesky's factors."""

import itertools

import pytest
import torch
from conftest import DEVICE, to_device

SIZES = (1, 2, 31, 64, 65, 130, 200)
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
WIDE = {dtype: torch.complex128 if dtype.is_complex else torch.float64 for dtype in DTYPES}


def triangles(*shape, dtype=torch.float64):
    """Of which solutions have no large elements."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, dtype=dtype) / shape[-1]
    x.diagonal(dim1=-2, dim2=-1).add_(1)
    return x


def positive(*shape, dtype=torch.float64):
    x = triangles(*shape, dtype=dtype)
    return x @ x.mH


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_sizes(check, size, dtype):
    """What is not part of the triangle is not read."""
    a = triangles(2, size, size, dtype=dtype)
    for columns, upper, left, unit in itertools.product((1, 5), *[(False, True)] * 3):
        b = triangles(2, *((size, columns) if left else (columns, size)), dtype=dtype)
        hidden = torch.ones(size, size, dtype=torch.bool)
        hidden = hidden.tril(-1 + unit) if upper else hidden.triu(1 - unit)
        given = a.masked_fill(hidden, float("nan"))
        exact = torch.linalg.solve_triangular(
            given.to(WIDE[dtype]), b.to(WIDE[dtype]), upper=upper, left=left, unitriangular=unit
        )
        actual = torch.linalg.solve_triangular(
            to_device(given), to_device(b), upper=upper, left=left, unitriangular=unit
        )
        limit = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-12
        torch.testing.assert_close(actual.cpu(), exact.to(dtype), rtol=limit, atol=limit)
        assert actual.stride() == exact.stride()


def test_batches_and_layouts(check):
    b = triangles(3, 1, 4, 5)
    for a in (triangles(4, 4), triangles(2, 4, 4), triangles(3, 2, 4, 4), triangles(2, 4, 4).mT):
        check(torch.linalg.solve_triangular, a, b, upper=True)
        check(torch.linalg.solve_triangular, a, b.mT, upper=False, left=False)
        check(torch.linalg.solve_triangular, a.mH, b[..., ::2], upper=False)
    a, b = triangles(2, 70, 70, dtype=torch.complex128), triangles(2, 70, 3, dtype=torch.complex128)
    check(lambda a, b: torch.linalg.solve_triangular(a.mH, b.conj(), upper=True), a, b)
    check(lambda a, b: torch.linalg.solve_triangular(a.conj(), b.mT, upper=False, left=False), a, b)
    check(torch.linalg.solve_triangular, triangles(0, 0), torch.zeros(0, 3, dtype=torch.float64), upper=True)
    check(torch.linalg.solve_triangular, triangles(2, 2), torch.zeros(2, 0, dtype=torch.float64), upper=True)
    many = triangles(2, 1, 2, 1, 2, 1, 2, 3, 3)
    check(torch.linalg.solve_triangular, many.transpose(0, 2), triangles(*[2] * 7, 3, 3), upper=True)
    check(
        lambda a, b, out: torch.linalg.solve_triangular(a, b, upper=True, out=out),
        *(triangles(4, 4), triangles(4, 5), torch.empty(4, 5, dtype=torch.float64)),
    )


@pytest.mark.parametrize("upper", [False, True])
def test_legacy(check, upper):
    cases = [(triangles(70, 70), triangles(70, 3)), (triangles(4, 4), triangles(2, 3, 4, 5))]
    for a, b in (*cases, (triangles(4, 4, dtype=torch.complex64), triangles(4, 2, dtype=torch.complex64))):
        for transpose, unit in itertools.product((False, True), repeat=2):
            check(torch.triangular_solve, b, a, upper, transpose, unit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_factors(check, size, dtype):
    a = positive(3, size, size, dtype=dtype)
    for upper in (False, True):
        check(torch.linalg.cholesky_ex, a, upper=upper)
        check(torch.linalg.cholesky, a[0], upper=upper)
        if hasattr(torch.ops.aten, "cholesky"):  # not since 2.14
            check(torch.cholesky, a, upper)
        factor = torch.linalg.cholesky(a, upper=upper)
        check(torch.cholesky_inverse, factor, upper)
        check(torch.cholesky_solve, triangles(3, size, 4, dtype=dtype), factor, upper)
    check(torch.linalg.cholesky_ex, a[:0])


def test_an_inverse_that_is_partly_too_large(check):
    factor = torch.ones(3, 3).tril()
    factor[2, 2] = torch.finfo(torch.float32).tiny
    check(torch.cholesky_inverse, factor)
    check(torch.cholesky_inverse, factor.mT.contiguous(), True)


@pytest.mark.parametrize("size", [3, 70])
def test_what_has_no_factors(size):
    """The first minor that is not positive is named."""
    a = positive(2, size, size)
    for at in (0, 1, size - 1):
        for value in (-100.0, float("nan")):
            broken = a.clone()
            broken[1, at, at] = value
            assert torch.linalg.cholesky_ex(broken.to(DEVICE)).info.tolist() == [0, at + 1]
    with pytest.raises(torch.linalg.LinAlgError, match=rf"\(Batch element 1\).*leading minor of order {size} "):
        torch.linalg.cholesky(broken.to(DEVICE))


def test_gradients(check):
    def gradients(a, b):
        leaves = [x.detach().requires_grad_() for x in (a, b)]
        solved = torch.linalg.solve_triangular(*leaves, upper=True)
        factor = torch.linalg.cholesky(leaves[0] @ leaves[0].mH)
        return torch.autograd.grad(solved.abs().sum() + factor.abs().sum(), leaves)

    for dtype in (torch.float64, torch.complex128):
        check(gradients, triangles(2, 6, 6, dtype=dtype), triangles(2, 6, 3, dtype=dtype))


def test_out(check):
    """What is resized is laid out by columns; of another dtype it is refused."""
    a, b = triangles(4, 4), triangles(4, 2)
    for operator, given, dtypes in (
        (torch.triangular_solve, (b, a), (torch.float64, torch.float64)),
        (torch.linalg.cholesky_ex, (a @ a.mT,), (torch.float64, torch.int32)),
    ):
        expected = operator(*given)
        out = [torch.empty(0, dtype=dtype, device=DEVICE) for dtype in dtypes]
        operator(*to_device(given), out=tuple(out))
        for actual, wanted in zip(out, expected, strict=True):
            torch.testing.assert_close(actual.cpu(), wanted)
            assert actual.stride() == wanted.stride()
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            operator(*to_device(given), out=(out[0], out[1].to(torch.float32)))
    for operator, given in ((torch.linalg.solve_triangular, (a, b)), (torch.cholesky_inverse, (a,))):
        out = torch.empty(0, device=DEVICE, dtype=a.dtype)
        assert operator(*to_device(given), upper=True, out=out).stride() == (1, 4)
