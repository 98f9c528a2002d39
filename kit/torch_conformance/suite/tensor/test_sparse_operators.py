"""Operators on sparse tensors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.suite.tensor._sparse import check, operands
from torch_conformance.suite.tensor._support import each

pytestmark = [needs.feature("sparse"), pytest.mark.filterwarnings("ignore:Sparse")]

compressed = needs.feature("sparse compressed")

DIRECT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "neg": lambda s, d: -s,
    "sin": lambda s, d: s.sin(),
    "relu": lambda s, d: s.relu(),
    "mul scalar": lambda s, d: s * 3,
    "div scalar": lambda s, d: s / 2,
    "add": lambda s, d: s + s * 2,
    "sub": lambda s, d: s - s,
    "mul": lambda s, d: s * s,
    "mm dense": lambda s, d: torch.sparse.mm(s, d),
    "matmul dense": lambda s, d: s @ d,
    "dense plus": lambda s, d: d + s,
    "transpose": lambda s, d: s.t(),
    "sum": lambda s, d: s.sum(),
    "to_dense": lambda s, d: s.to_dense(),
    "addmm": lambda s, d: torch.addmm(d, s, d, beta=0.5, alpha=2),
}

COO: dict[str, Callable[[Tensor, Tensor], Tensor]] = DIRECT | {
    "mv": lambda s, d: s.mv(d[0]),
    "sparse mm sparse": lambda s, d: torch.sparse.mm(s, s),
    "sum dim": lambda s, d: torch.sparse.sum(s, 0),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s, d: torch.sparse.log_softmax(s, 0),
    "index": lambda s, d: s[1],
    "index_select": lambda s, d: s.index_select(0, torch.tensor([2, 0], device=s.device)),
    "narrow_copy": lambda s, d: s.narrow_copy(0, 1, 2),
    "permute": lambda s, d: s.permute(1, 0),
    "unsqueeze": lambda s, d: s.unsqueeze(0),
    "cat": lambda s, d: torch.cat([s, s]),
    "stack": lambda s, d: torch.stack([s, s]),
    "coalesce": lambda s, d: (s + s.t()).coalesce(),
    "norm": lambda s, d: s.norm(),
    "pow": lambda s, d: s.pow(2),
    "mask": lambda s, d: d.sparse_mask(s),
    "mask by sparse": lambda s, d: s.sparse_mask((s * 2).coalesce()),
    "mul dense": lambda s, d: s * d,
    "bmm": lambda s, d: torch.bmm(torch.stack([s, s]), torch.stack([d, d])),
    "sspaddmm": lambda s, d: torch.sspaddmm(s, s, d),
    "hspmm": lambda s, d: torch.hspmm(s, d),
    "any": lambda s, d: s.bool().any(),
    "isnan": lambda s, d: s.isnan(),
    "spdiags": lambda s, d: torch.sparse.spdiags(d.cpu(), torch.arange(4), (4, 4)).to(s.device) + s,
    "broadcast": lambda s, d: torch._sparse_broadcast_to(s, (2, 4, 4)),
}

CSR: dict[str, Callable[[Tensor, Tensor], Tensor]] = DIRECT | {
    "select": lambda s, d: s[2],
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s, d, d),
    "reduce": lambda s, d: torch.sparse.mm(s, d, "amax"),
    "mask": lambda s, d: d.sparse_mask(s),
    "addmv": lambda s, d: torch.addmv(d[0], s, d[1]),
    "fill": lambda s, d: s.clone().fill_(2),
}


@each("use", COO, torch_backend=["sspaddmm"])  # for CUDA PyTorch has none
def test_coo_operator(device: str, use: Callable[[Tensor, Tensor], Tensor]) -> None:
    """An operator on COO tensors gives what it gives on the CPU."""
    check(use(*operands(device, Tensor.to_sparse)), use(*operands("cpu", Tensor.to_sparse)), device)


@compressed
@each("use", CSR)
def test_csr_operator(device: str, use: Callable[[Tensor, Tensor], Tensor]) -> None:
    """An operator on CSR tensors gives, or refuses, what it does on the CPU."""
    try:
        expected = use(*operands("cpu", Tensor.to_sparse_csr))
    except RuntimeError:
        with pytest.raises((RuntimeError, NotImplementedError)):
            use(*operands(device, Tensor.to_sparse_csr))
        return
    check(use(*operands(device, Tensor.to_sparse_csr)), expected, device)


IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul_": lambda s, d: s.mul_(2),
    "neg_": lambda s, d: s.neg_(),
    "sin_": lambda s, d: s.sin_(),
    "add_": lambda s, d: s.add_(s.t(), alpha=2) if s.layout is torch.sparse_coo else s.add_(s),
    "zero_": lambda s, d: s.zero_(),
    "copy_": lambda s, d: s.copy_(s * 2),
    "dense add_": lambda s, d: d.add_(s),
    "values": lambda s, d: s.values().fill_(7),
    "addmm_": lambda s, d: d.addmm_(s, d.clone()),
    "out": lambda s, d: torch.mm(s, d, out=torch.empty_like(d)),
    "sin out": lambda s, d: torch.sin(s, out=s.clone()),
    "mul out": lambda s, d: torch.mul(s, s, out=s.clone()),
}


@each("convert", {"coo": Tensor.to_sparse, "csr": Tensor.to_sparse_csr}, **{"sparse compressed": ["csr"]})
@each("use", IN_PLACE)
def test_writing(device: str, use: Callable[[Tensor, Tensor], Tensor], convert: Callable[[Tensor], Tensor]) -> None:
    """An operator that writes to sparse tensors, or into a dense one, writes what it writes on the CPU."""
    host, there = operands("cpu", convert), operands(device, convert)
    expected, actual = use(*host), use(*there)
    check(actual, expected, device)
    for one, other in zip(there, host, strict=True):
        check(one, other, device)
    assert [actual is x for x in there] == [expected is x for x in host], (
        "on one side only the operator returns its operand"
    )


@compressed
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_product(device: str, reduce: str) -> None:
    """torch.sparse.mm with a reduction gives what it gives on the CPU."""
    sparse, dense = operands("cpu", Tensor.to_sparse_csr)
    there, weight = operands(device, Tensor.to_sparse_csr)
    check(torch.sparse.mm(there, weight, reduce), torch.sparse.mm(sparse, dense, reduce), device)
