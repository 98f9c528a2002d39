"""Small models of the usual kinds, each with the input it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 4
"""Number of classes that every model tells apart."""


class LastOutput(nn.Module):
    """A recurrent network with a linear layer on its last output."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.recurrent = kind(8, 12, batch_first=True, **options)
        self.head = nn.Linear(24 if options.get("bidirectional") else 12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of each class, from a batch of sequences."""
        scores: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return scores


class Classifier(nn.Module):
    """A transformer encoder over tokens, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of each class, from a batch of tokens."""
        scores: Tensor = self.head(self.encoder(self.embedding(x)).mean(1))
        return scores


def mlp() -> nn.Module:
    """A multilayer perceptron, for :func:`vectors`."""
    return nn.Sequential(
        *(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32)), *(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, CLASSES))
    )


def dropout_mlp() -> nn.Module:
    """A perceptron that draws random numbers of the device in every forward pass, for :func:`vectors`."""
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.4), nn.Linear(32, CLASSES), nn.Dropout(0.2))


def cnn() -> nn.Module:
    """A convolutional network with normalizations, for :func:`images`."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 2)),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)),
    )


def vectors(generator: torch.Generator) -> Tensor:
    """A batch of 16 vectors of 8."""
    return torch.randn(16, 8, generator=generator)


def images(generator: torch.Generator) -> Tensor:
    """A batch of 4 images with 3 channels."""
    return torch.randn(4, 3, 8, 8, generator=generator)


def sequences(generator: torch.Generator) -> Tensor:
    """A batch of 6 sequences of 5 vectors."""
    return torch.randn(6, 5, 8, generator=generator)


def tokens(generator: torch.Generator) -> Tensor:
    """A batch of 6 sequences of 7 tokens."""
    return torch.randint(20, (6, 7), generator=generator)


@dataclass(frozen=True)
class Case:
    """A model, and how to draw a batch of its inputs."""

    make: Callable[[], nn.Module]
    sample: Callable[[torch.Generator], Tensor]


CASES = {
    "mlp": Case(mlp, vectors),
    "cnn": Case(cnn, images),
    "rnn": Case(lambda: LastOutput(nn.RNN), sequences),
    "lstm": Case(lambda: LastOutput(nn.LSTM), sequences),
    "lstm-bidirectional": Case(lambda: LastOutput(nn.LSTM, num_layers=2, bidirectional=True), sequences),
    "lstm-without-bias": Case(lambda: LastOutput(nn.LSTM, num_layers=2, bias=False), sequences),
    "gru": Case(lambda: LastOutput(nn.GRU), sequences),
    "gru-stacked": Case(lambda: LastOutput(nn.GRU, num_layers=2, bias=False), sequences),
    "transformer": Case(Classifier, tokens),
}
"""Every kind of model, by a name for test ids."""
