"""Gradients of and with respect to sparse tensors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torch_conformance import needs
from torch_conformance.suite.tensor._sparse import DENSE, operands

pytestmark = [needs.feature("sparse"), pytest.mark.filterwarnings("ignore:Sparse")]


@pytest.mark.parametrize("use", ["mm", "sum", "softmax", "to_dense", "mul", "add", "coalesce", "transpose"])
def test_gradients(device: str, use: str) -> None:
    """Gradients go through operators on sparse tensors."""
    uses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "mm": lambda s, d: torch.sparse.mm(s, d).sum(),
        "sum": lambda s, d: torch.sparse.sum(s * 2),
        "softmax": lambda s, d: (torch.sparse.softmax(s, 1).to_dense() * d).sum(),
        "to_dense": lambda s, d: (s.to_dense() * d).sum(),
        "mul": lambda s, d: torch.sparse.sum(s * s),
        "add": lambda s, d: (d + s).square().sum(),
        "coalesce": lambda s, d: (s.coalesce().values() ** 2).sum(),
        "transpose": lambda s, d: (s.t().to_dense() * d).sum(),
    }
    gradients = []
    for where in ("cpu", device):
        leaf = DENSE.to(where, copy=True).requires_grad_()
        dense = torch.arange(16.0).view(4, 4).to(where).requires_grad_()
        uses[use](leaf.to_sparse(), dense).backward()
        gradients.append((leaf.grad, dense.grad))
    for expected, actual in zip(*gradients, strict=True):
        assert (actual is None) == (expected is None), "a gradient is there on one side only"
        if actual is not None and expected is not None:
            torch.testing.assert_close(actual.to_dense().cpu(), expected.to_dense())


def test_gradient_of_parts(device: str) -> None:
    """The gradient of a sparse tensor reaches the values it was made of."""
    values = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=device), values, (2, 2))
    (x @ torch.tensor([[1.0], [3.0]], device=device)).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3, 1], f"the gradient of the values is {values.grad.tolist()}, not [3, 1]"


def test_embedding_with_sparse_adam(device: str) -> None:
    """An embedding with sparse gradients trains with SparseAdam as on the CPU."""
    weights = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        model = torch.nn.Embedding(20, 4, sparse=True).to(where)
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.tensor([1, 5, 5, step], device=where)).square().sum()
            loss.backward()
            grad = model.weight.grad
            assert grad is not None
            assert grad.is_sparse, "the gradient of a sparse embedding is dense"
            assert grad.device.type == where, f"the gradient is on {grad.device}"
            optimizer.step()
        weights.append(model.weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0])


def test_accumulating_sparse_gradients_with_sgd(device: str) -> None:
    """Sparse gradients add up, and SGD uses them, as on the CPU."""
    weights = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        weight = torch.randn(6, 3).to(where).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for indices in ([0, 1], [1, 5]):
            F.embedding(torch.tensor(indices, device=where), weight, sparse=True).sum().backward()
        assert weight.grad is not None
        assert weight.grad.is_sparse, "the gradient of a sparse embedding is dense"
        optimizer.step()
        weights.append(weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0])


@needs.feature("sparse compressed")
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradient_of_a_reducing_product(device: str, reduce: str) -> None:
    """The gradient of torch.sparse.mm with a reduction is the CPU's."""
    gradients = []
    for where in ("cpu", device):
        matrix, weight = operands(where, Tensor.to_sparse_csr)
        torch.sparse.mm(matrix, weight.requires_grad_(), reduce).sum().backward()
        assert weight.grad is not None
        gradients.append(weight.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])
