"""What operators say to tensors of several devices: PyTorch's words, which programs and tests look for."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

HOST = torch.ones(3, 4)


@pytest.fixture
def x(name: str) -> Tensor:
    return torch.ones(3, 4, device=name)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda x: torch.addmm(x[:, :3], x, HOST.t()), "mat2"),
        (lambda x: torch.bmm(x[None], HOST.t()[None]), "mat2"),
        (lambda x: torch.mm(HOST, x.t()), "mat2"),
        (lambda x: torch.gather(x, 0, torch.zeros(1, 4, dtype=torch.long)), "index"),
        (lambda x: x.index_select(0, torch.tensor([0])), "index"),
        (lambda x: torch.cat([x, HOST]), "tensors"),
        (lambda x: torch.mm(x, x.t(), out=torch.empty(3, 3)), "self"),
        (lambda x: torch.nn.functional.embedding(torch.tensor([1]), x), "index"),
    ],
)
def test_arguments_that_pytorch_names(x: Tensor, call: Callable[[Tensor], Tensor], argument: str) -> None:
    pattern = (
        r"Expected all tensors to be on the same device, but "
        rf"(got {argument} is on .*, different from other tensors on .* \(when checking argument in method"
        rf"|found at least two devices, .* and .*! \(when checking argument for argument {argument} in method)"
    )
    with pytest.raises(RuntimeError, match=pattern):
        call(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + HOST,
        lambda x: torch.where(x > 0, HOST, x),
        lambda x: x.masked_fill(HOST > 0, 1.0),
        lambda x: x.index_put_((torch.tensor([0]),), HOST[:1]),
        lambda x: x.index_put((torch.tensor([0]),), HOST[:1]),
        lambda x: x.index_put_((torch.tensor([0]),), HOST[:1], accumulate=True),
    ],
)
def test_operands_that_iterators_compare(name: str, x: Tensor, call: Callable[[Tensor], Tensor]) -> None:
    pattern = f"Expected all tensors to be on the same device, but found at least two devices, {name}:0 and cpu!"
    with pytest.raises(RuntimeError, match=pattern):
        call(x)
    assert torch.equal(x.cpu(), HOST)


@pytest.mark.parametrize(
    "call", [lambda x: HOST[x[0].long()], lambda x: HOST.clone().index_put_((x[0].long(),), HOST[:1])]
)
def test_indices_elsewhere(x: Tensor, call: Callable[[Tensor], Tensor]) -> None:
    pattern = r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"
    with pytest.raises(RuntimeError, match=pattern):
        call(x)


def test_what_may_be_on_the_cpu(x: Tensor) -> None:
    rows = torch.tensor([2, 0])
    assert torch.equal(x[rows].cpu(), HOST[rows])
    x.index_put_((rows,), torch.tensor(5.0))
    x[rows[:1]] = 7.0
    assert x[:, 0].tolist() == [5, 1, 7]
    assert torch.equal((x + torch.tensor(1.0)).cpu(), x.cpu() + 1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1, 1, 1]))
    assert torch.nn.utils.rnn.pad_packed_sequence(packed)[0].shape == (2, 4)
