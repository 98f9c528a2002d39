"""Bags of embeddings, and weights that are divided by their norms, with their gradients."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from torch import Tensor

TABLE = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
INDICES = torch.tensor([1, 2, 4, 2, 0, 8, 1])
ALL_OFFSETS = {"several": [0, 2, 5], "one": [0], "empty ones": [0, 0, 3, 7]}


def bags_and_gradients(table: Tensor, indices: Tensor, offsets: Tensor, **options: object) -> list[Tensor]:
    leaves = [table, *(value for value in options.values() if isinstance(value, Tensor))]
    for leaf in leaves:
        leaf.requires_grad_()
    result = F.embedding_bag(indices, table, offsets, **options)
    factors = torch.arange(1.0, 1.0 + result.numel(), dtype=result.dtype).reshape(result.shape).to(result.device)
    return [result, *torch.autograd.grad(result, leaves, factors / result.numel())]


@pytest.mark.parametrize("offsets", ALL_OFFSETS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2, -8])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_bags(check, offsets, mode, padding_idx, kind):
    inputs = TABLE.clone(), INDICES.to(kind), torch.tensor(ALL_OFFSETS[offsets], dtype=kind)
    check(bags_and_gradients, *inputs, mode=mode, padding_idx=padding_idx)
    last = torch.tensor([*ALL_OFFSETS[offsets], len(INDICES)], dtype=kind)
    check(bags_and_gradients, TABLE.clone(), INDICES.to(kind), last, mode=mode, include_last_offset=True)
    if mode == "sum":
        check(
            bags_and_gradients, *inputs, per_sample_weights=torch.rand(len(INDICES)), padding_idx=padding_idx, mode=mode
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_dtypes(check, dtype, mode):
    # The CPU rounds each sum of halves.
    limits = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    check(bags_and_gradients, TABLE.to(dtype), INDICES, torch.tensor([0, 3]), mode=mode, **limits)


def test_the_largest_of_what_is_equal_and_of_what_is_infinite(check):
    table = torch.tensor([[1.0, -torch.inf], [1.0, -torch.inf], [0.0, torch.inf]])
    for indices in ([0, 1, 2, 1, 0], [1, 0, 0, 1]):
        check(bags_and_gradients, table.clone(), torch.tensor(indices), torch.tensor([0, 2, 2]), mode="max")


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_by_frequency(mode):
    """Each index's part is divided by how often it comes: the CPU's embedding does so, its bags do not."""
    offsets = torch.tensor([0, 2])
    result, gradient = bags_and_gradients(
        *(x.to(DEVICE) for x in (TABLE, INDICES, offsets)), mode=mode, scale_grad_by_freq=True
    )
    table = TABLE.clone().requires_grad_()
    rows = F.embedding(INDICES, table, scale_grad_by_freq=True)
    expected = torch.stack([getattr(part, mode)(0) for part in (rows[:2], rows[2:])])
    expected.backward(torch.arange(1.0, 11.0).reshape(2, 5) / 10)
    torch.testing.assert_close(result.detach().cpu(), expected.detach())
    torch.testing.assert_close(gradient.cpu(), table.grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_no_index(check, mode):
    check(bags_and_gradients, TABLE.clone(), INDICES[:0], torch.tensor([0, 0]), mode=mode)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("mode", [-1, 3])
def test_a_gradient_of_no_mode(device, mode):
    indices, bags, sizes = (torch.tensor(x, device=device) for x in ([0, 1], [0, 0], [2]))
    with pytest.raises(RuntimeError, match="mode"):
        torch.ops.aten._embedding_bag_dense_backward(
            torch.ones(1, 2, device=device), indices, bags, sizes, sizes, 3, False, mode, None
        )


def test_rows_of_a_table_are_limited(check):
    check(lambda table, i: F.embedding_bag(i, table, max_norm=1.0, mode="sum"), TABLE.clone(), INDICES[:6].view(2, 3))
    check(lambda table, i: F.embedding(i, table, max_norm=0.5, norm_type=1), TABLE.clone(), INDICES)


def test_an_index_that_is_out_of_range():
    with pytest.raises(IndexError, match="out of range"):
        F.embedding_bag(torch.tensor([[1, 9]]).to(DEVICE), TABLE.to(DEVICE)).cpu()


@pytest.mark.parametrize("dim", [0, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weight_norm(check, dim, dtype):
    def weight_and_gradients(v: Tensor, g: Tensor, grad: Tensor) -> list[Tensor]:
        weight = torch._weight_norm(v.requires_grad_(), g.requires_grad_(), dim)
        return [weight, *torch.autograd.grad(weight, (v, g), grad)]

    sizes = [1, 1, 1]
    sizes[dim] = (4, 3, 2)[dim]
    inputs = [torch.randn(*shape).to(dtype) for shape in ((4, 3, 2), sizes, (4, 3, 2))]
    few_bits = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 16 * torch.finfo(dtype).eps}
    check(weight_and_gradients, *inputs, **(few_bits if dtype.itemsize == 2 else {}))
