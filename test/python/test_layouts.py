"""Sparse, nested and quantized tensors: what the CPU serves is counted, what it cannot serve is said."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_backend import fallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:.*deprecated"),
]

DENSE = torch.tensor([[0.0, 2.0, 0.0, -1.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.5], [0.0, 1.0, 0.0, 0.0]])


def nested(device: str) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(rows, 4, device=device) for rows in (2, 3, 1)])


def quantized(device: str) -> Tensor:
    return torch.quantize_per_tensor(torch.linspace(-3, 3, 24, device=device).view(2, 3, 4), 0.05, 64, torch.quint8)


def fallbacks() -> list[str]:
    return [entry.op for entry in fallback.report().entries]


# ---- the fallback ----


def test_sparse_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), device=name)
    fallback.reset()
    assert (x._nnz(), x.sparse_dim(), x.is_coalesced(), x._values().shape) == (2, 1, False, (2,))
    assert fallbacks() == []
    assert x.coalesce().values().tolist() == [3]
    assert "aten::_coalesce" in fallbacks()
    with fallback.policy("aten::_coalesce", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        x.coalesce()


def test_nested_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = nested(name)
    fallback.reset()
    assert x.is_nested
    assert (x.dim(), x.size(2), len(x.unbind())) == (3, 4, 3)
    assert fallbacks() == []
    x.to_padded_tensor(0.0)
    assert "aten::to_padded_tensor" in fallbacks()
    with fallback.policy("aten::to_padded_tensor", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        x.to_padded_tensor(0.0)


def test_quantized_fallback_is_counted_and_can_be_forbidden(name: str) -> None:
    x = quantized(name)
    fallback.reset()
    assert (x.q_scale(), x.view(4, 6).shape, x.clone()[0].shape) == (0.05, (4, 6), (3, 4))
    assert fallbacks() == []
    torch.ops.quantized.add(x, x, 0.1, 3)
    assert "quantized::add" in fallbacks()
    with fallback.policy("quantized::add", "error"), pytest.raises(NotImplementedError, match="set_policy"):
        torch.ops.quantized.add(x, x, 0.1, 3)


# ---- what the CPU lacks ----

LACKING: dict[str, tuple[Callable[[str], Tensor], Callable[[Tensor], Tensor]]] = {
    "sparse": (lambda d: DENSE.to(d).to_sparse(), lambda x: x.cumsum(0)),
    "nested": (nested, lambda x: x.cumsum(1)),
    "quantized": (quantized, lambda x: x.sin()),
}


@pytest.mark.parametrize("layout", LACKING)
def test_what_the_cpu_lacks_raises(name: str, layout: str) -> None:
    make, use = LACKING[layout]
    with pytest.raises(NotImplementedError):
        use(make("cpu"))
    with pytest.raises(NotImplementedError, match=f"with {layout} tensors on {name}: .*neither has the CPU"):
        use(make(name))


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_reducing_products_without_a_gradient(name: str, reduce: str) -> None:
    matrix, weight = DENSE.to(name).to_sparse_csr(), torch.ones(4, 2, device=name, requires_grad=True)
    with pytest.raises(NotImplementedError, match=f"Gradients of torch.sparse.mm with reduce='{reduce}' are not"):
        torch.sparse.mm(matrix, weight, reduce)


# ---- other kinds of device ----
