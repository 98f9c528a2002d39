"""Layers and losses over sequences of different lengths."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.training._training import model_of


def test_padded_sequences(device: str) -> None:
    """An LSTM over packed sequences gives what it gives on the CPU, and zeros where a sequence has ended."""
    lengths = torch.tensor([5, 3, 2])
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    lstm = model_of(lambda: nn.LSTM(8, 6, batch_first=True))
    results = []
    for where in ("cpu", device):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(where), lengths, batch_first=True)
        output, _ = copy.deepcopy(lstm).to(where)(packed)
        results.append(nn.utils.rnn.pad_packed_sequence(output, batch_first=True))
    (expected, _), (actual, actual_lengths) = results
    torch.testing.assert_close(actual.cpu(), expected)
    assert torch.equal(actual_lengths, lengths), f"lengths {lengths.tolist()} came back as {actual_lengths.tolist()}"


def test_ctc_loss(device: str) -> None:
    """The CTC loss of sequences of different lengths, and its gradient, are those of the CPU."""
    generator = torch.Generator().manual_seed(0)
    scores, targets = torch.randn(10, 2, 5, generator=generator), torch.randint(1, 5, (2, 4), generator=generator)
    lengths = torch.tensor([10, 8]), torch.tensor([4, 3])
    losses, gradients = [], []
    for where in ("cpu", device):
        leaf = scores.detach().to(where, copy=True).requires_grad_()
        loss = F.ctc_loss(leaf.log_softmax(2), targets.to(where), *lengths)
        loss.backward()
        losses.append(loss.cpu())
        assert leaf.grad is not None
        gradients.append(leaf.grad.cpu())
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("gradient", ["dense", pytest.param("sparse", marks=needs.feature("sparse"))])
def test_embedding_bag(device: str, gradient: str) -> None:
    """Sums of embeddings per bag, and the gradient of the embeddings, are those of the CPU."""
    bag = model_of(lambda: nn.EmbeddingBag(10, 4, mode="sum", sparse=gradient == "sparse"))
    tokens, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2])
    expected = bag(tokens, offsets)
    expected.sum().backward()
    on_device = copy.deepcopy(bag).to(device)
    on_device.zero_grad()
    actual = on_device(tokens.to(device), offsets.to(device))
    actual.sum().backward()
    torch.testing.assert_close(actual.cpu(), expected)
    assert on_device.weight.grad is not None
    assert on_device.weight.grad.layout is bag.weight.grad.layout
    torch.testing.assert_close(on_device.weight.grad.to_dense().cpu(), bag.weight.grad.to_dense())
