"""One training step (forward, backward, optimizer) of small models.

Autograd runs an asynchronous device's backward in a thread of its own, native CPU's in the caller's. On a busy machine
waiting for that thread to be scheduled is part of the device's time.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def run(device: torch.device) -> list[Row]:
    """Milliseconds of one step."""
    rows = []
    steps: dict[str, Callable[[torch.device], Work]] = {
        "MLP": _mlp,
        "transformer encoder layer": transformer,
        "CNN": cnn,
        "tiny MLP with momentum": _tiny_mlp,
        "LSTM": partial(recurrent, nn.LSTM),
        "GRU": partial(recurrent, nn.GRU),
        "packed LSTM": _packed_lstm,
        "VAE": _vae,
        "bfloat16 autocast": partial(_autocast, torch.bfloat16),
        "float16 autocast": partial(_autocast, torch.float16),
    }
    for name, make in steps.items():
        comparison = compare(make(device), make(torch.device("cpu")), rounds=101, round_s=0.002)
        rows.append(time_row(name, comparison, "ms"))
    return rows


def step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, optimizer: torch.optim.Optimizer, loss: Loss
) -> None:
    """One of them."""
    optimizer.zero_grad()
    loss(model(inputs), targets).backward()
    optimizer.step()


def _mlp(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs, targets = torch.randn(64, 784), torch.randint(10, (64,))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return partial(step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)


def transformer(device: torch.device) -> Work:
    """A step of a small transformer encoder layer with AdamW."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    inputs, targets = torch.randn(8, 32, 128), torch.randn(8, 32, 128)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return partial(step, model, inputs.to(device), targets.to(device), optimizer, F.mse_loss)


def cnn(device: torch.device) -> Work:
    """A step of two convolutions and a linear layer on images of 28x28."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 14 * 14, 10),
    )
    inputs, targets = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return partial(step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)


def _tiny_mlp(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    inputs, targets = torch.randn(8, 16), torch.randint(10, (8,))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return partial(step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)


class _LastOutput(nn.Module):
    """Two recurrent layers, and a class from what comes out of them at the end."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers, self.head = kind(32, 64, num_layers=2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0][:, -1])


def recurrent(kind: type[nn.RNNBase], device: torch.device) -> Work:
    """A step of two recurrent layers on sequences of 20."""
    torch.manual_seed(0)
    model = _LastOutput(kind)
    inputs, targets = torch.randn(16, 20, 32), torch.randint(10, (16,))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return partial(step, model, inputs.to(device), targets.to(device), optimizer, F.cross_entropy)


class _Tagger(nn.Module):
    """A class per word of sentences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32, padding_idx=0)
        self.layers, self.head = nn.LSTM(32, 32, bidirectional=True, batch_first=True), nn.Linear(64, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.words(words), LENGTHS, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return self.head(states).flatten(0, 1)


LENGTHS = torch.tensor([12, 5, 9, 12, 3, 7, 11, 8])


def _packed_lstm(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = _Tagger()
    words, tags = torch.randint(1, 100, (8, 12)), torch.randint(10, (8, 12))
    outside = torch.arange(12) >= LENGTHS[:, None]
    words[outside], tags[outside] = 0, -100
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return partial(step, model, words.to(device), tags.flatten().to(device), optimizer, F.cross_entropy)


class _VAE(nn.Module):
    """What a variational autoencoder makes of images, and what describes its code."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 2 * 16))
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        return self.decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)), mean, log_var


def _vae_loss(outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    image, mean, log_var = outputs
    divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
    return F.binary_cross_entropy(image, images, reduction="sum") + divergence


def _vae(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = _VAE().to(device)
    images = torch.rand(16, 784).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return partial(step, model, images, images, optimizer, _vae_loss)


def _autocast(dtype: torch.dtype, device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.LayerNorm(128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    inputs, targets = torch.randn(32, 64).to(device), torch.randint(10, (32,)).to(device)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(device.type)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step
