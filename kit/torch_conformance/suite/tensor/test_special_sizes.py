"""Tensors without elements and without dimensions."""

import torch

from torch_conformance import needs
from torch_conformance.suite.tensor._support import assert_same_outcome, each, evaluate

SIZES = {
    "sum of nothing": "torch.ones(0, device=d).sum()",
    "mean of nothing": "torch.ones(0, device=d).mean()",
    "max of nothing": "torch.ones(0, device=d).max()",
    "sums of no rows": "torch.ones(0, 3, device=d).sum(0)",
    "product without rows": "torch.ones(0, 3, device=d) @ torch.ones(3, 4, device=d)",
    "product without inner size": "torch.ones(2, 0, device=d) @ torch.ones(0, 4, device=d)",
    "cat with nothing": "torch.cat([torch.ones(0, device=d), torch.ones(2, device=d)])",
    "sort of nothing": "torch.ones(0, device=d).sort()[0]",
    "no rows of no rows": "torch.ones(0, 3, device=d)[torch.zeros(0, dtype=torch.int64, device=d)]",
    "transposed nothing": "torch.ones(0, 3, device=d).t().contiguous().add_(1)",
    "nonzero of zeros": "torch.nonzero(torch.zeros(3, device=d))",
    "linear of nothing": "torch.nn.functional.linear(torch.ones(0, 3, device=d), torch.ones(2, 3, device=d))",
    "inverses of no matrices": "torch.linalg.inv(torch.ones(0, 3, 3, device=d))",
    "0-d times 0-d": "torch.tensor(2.0, device=d) * torch.tensor(3.0, device=d)",
    "0-d expanded": "torch.tensor(2.0, device=d).expand(3) + 1",
    "sum to 0-d": "torch.tensor([2, 1], device=d).sum()",
    "0-d with one of the CPU": "torch.tensor(2, device=d) + torch.tensor(0.5)",
    "cumsum of 0-d": "torch.tensor(2, device=d).cumsum(0)",
    "sort of 0-d": "torch.tensor(5.0, device=d).sort()[1]",
    "0-d indexed by None": "torch.tensor(5.0, device=d)[None]",
    "0-d indexed": "torch.tensor(5.0, device=d)[0]",
    "stack of 0-d": "torch.stack([torch.tensor(1.0, device=d), torch.tensor(2.0, device=d)])",
}


@each("code", SIZES)
def test_zero_size_and_zero_dimensions(device: str, code: str) -> None:
    """An operator on tensors without elements or dimensions gives, or raises, what it does on the CPU."""
    assert_same_outcome(lambda where: evaluate(code, d=where), device, code)


@needs.feature("storage")
def test_nothing_has_no_memory(device: str) -> None:
    """Tensors without elements exist in any number, can be written to and go to the host and back."""
    tensors = [torch.empty(0, size, device=device) for size in range(100)]
    for x in tensors:
        assert x.untyped_storage().nbytes() == 0, f"a tensor without elements has {x.untyped_storage().nbytes()} bytes"
        assert x.fill_(1).add_(1).cpu().to(device).shape == x.shape, (
            "a tensor without elements has another shape after a round trip"
        )
