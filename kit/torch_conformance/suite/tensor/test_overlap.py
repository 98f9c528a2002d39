"""Elements that share a place in memory: read as often as they are seen, and not written to."""

import pytest

from torch_conformance.suite.tensor._support import assert_same_outcome, check_refused, each, evaluate

WRITTEN = {
    "add_": "torch.ones(1, device=d).expand(3).add_(1)",
    "copy_": "torch.ones(1, device=d).expand(3).copy_(torch.ones(3))",
    "mul_": "torch.ones(1, device=d).expand(3).mul_(torch.ones(3, device=d))",
    "neg out": "torch.neg(torch.ones(3, device=d), out=torch.ones(1, device=d).expand(3))",
    "sigmoid_": "torch.ones(1, device=d).expand(3).sigmoid_()",
}

READ = {
    "expanded times number": "torch.ones(1, 3, device=d).expand(4, 3) * 2",
    "sum of expanded": "torch.arange(3.0, device=d).expand(4, 3).sum(0)",
    "contiguous of expanded": "torch.arange(3.0, device=d).expand(4, 3).contiguous()",
    "clone of expanded": "torch.arange(3.0, device=d).expand(4, 3).clone()",
    "product of expanded": "torch.arange(3.0, device=d).expand(4, 3).t() @ torch.ones(4, 2, device=d)",
    "overlapping strides": "torch.arange(6.0, device=d).as_strided((3, 3), (1, 1)).add(1)",
    "out is both inputs": "(lambda x: torch.add(x, x, out=x))(torch.arange(4.0, device=d))",
    "copy to itself": "(lambda x: x.copy_(x))(torch.arange(4.0, device=d))",
    "column stored where it is": "(lambda x: (x.__setitem__((..., 0), x[..., 0].add_(1)), x)[1])"
    "(torch.arange(6, device=d).view(3, 2))",
}

PARTIAL = {
    "copy_": "(lambda x: x[1:].copy_(x[:-1]))(torch.arange(4.0, device=d))",
    "copy_ that converts": "(lambda x: x[1:].copy_(x[:-1].view(torch.int32)))(torch.arange(4.0, device=d))",
    "add out": "(lambda x: torch.add(x[:-1], 1, out=x[1:]))(torch.arange(4.0, device=d))",
    "add_": "(lambda x: x[1:].add_(x[:-1]))(torch.arange(4.0, device=d))",
    "floor_divide_": "(lambda x: x[1:].floor_divide_(x[:-1]))(torch.arange(4.0, device=d))",
    "cat out": "(lambda x: torch.cat([x[1:], x[:1]], out=x))(torch.arange(4.0, device=d))",
    "exp out": "(lambda x: torch.exp(x[:-1], out=x[1:]))(torch.arange(4.0, device=d))",
    "gather out that grows": "(lambda x: torch.gather(torch.arange(3, device=d), 0, x[1:], out=x[:1]))"
    "(torch.tensor([2, 1, 0], device=d))",
    "gather out": "(lambda x: torch.gather(x, 0, x[:2].long(), out=x[1:3]))(torch.arange(4.0, device=d))",
}


@each("code", WRITTEN)
def test_writes_to_shared_places_raise(device: str, code: str) -> None:
    """A write to a tensor whose elements share a place in memory raises, as on the CPU."""
    with pytest.raises(RuntimeError, match="single memory location"):
        evaluate(code, d="cpu")
    check_refused({code: lambda: evaluate(code, d=device)}, "elements share a place", "single memory location")
    assert_same_outcome(lambda where: evaluate(code, d=where), device, code)


@each("code", READ)
def test_shared_places_are_read(device: str, code: str) -> None:
    """A tensor whose elements share places in memory is read element by element."""
    assert_same_outcome(lambda where: evaluate(code, d=where), device, code)


@each("code", PARTIAL, int32=["copy_ that converts"])
def test_partial_overlap_raises(device: str, code: str) -> None:
    """An operator raises if its output overlaps an input without being it, as on the CPU."""
    with pytest.raises(RuntimeError, match="unsupported operation"):
        evaluate(code, d="cpu")
    check_refused({code: lambda: evaluate(code, d=device)}, "output and input overlap", "unsupported operation")
    assert_same_outcome(lambda where: evaluate(code, d=where), device, code)
