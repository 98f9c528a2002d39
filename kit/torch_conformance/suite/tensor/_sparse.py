"""Sparse tensors in every layout, and their comparison part by part."""

from collections.abc import Callable

import torch
from torch import Tensor

from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_close, each

DENSE = torch.tensor([[0.0, 2.0, 0.0, -1.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.5], [0.0, 1.0, 0.0, 0.0]])

CONVERSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}

every_layout = each("convert", CONVERSIONS, **{"sparse compressed": CONVERSIONS.keys() - {"coo"}})


def parts(x: Tensor) -> list[Tensor]:
    """The strided tensors that a sparse one is made of."""
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x]


def check(actual: Tensor, expected: Tensor, device: str) -> None:
    """``actual`` is on the device, and all its parts are as those of ``expected``, which is on the CPU."""
    assert actual.device.type == device, f"the result is on {actual.device}, not on {device}"
    for attribute, one, other in (
        ("layout", actual.layout, expected.layout),
        ("dtype", actual.dtype, expected.dtype),
        ("shape", actual.shape, expected.shape),
    ):
        assert one == other, f"the result has {attribute} {one}, on the CPU it has {other}"
    if actual.layout is torch.sparse_coo:
        if has("torch_backend"):
            assert actual.is_coalesced() == expected.is_coalesced()
        else:  # which PyTorch does not say: CUDA's sums are not
            actual, expected = actual.coalesce(), expected.coalesce()
    for number, (part, wanted) in enumerate(zip(parts(actual), parts(expected), strict=True)):
        assert_close(part, wanted, device, f"part {number} of the sparse result")


def operands(device: str, convert: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """A sparse and a dense tensor on the device."""
    return convert(DENSE.to(device)), (torch.arange(16.0).view(4, 4) / 4 - 1).to(device)
