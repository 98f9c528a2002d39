"""Training steps without a call that falls back, against the CPU's."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from torch import nn


def convolutions() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(first, second, nn.Linear(64, 10))


class Decoder(nn.Module):
    """Two causal layers over 16 tokens of 20."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 32), nn.Embedding(16, 32)
        self.parts = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(32), "qkv": nn.Linear(32, 96), "out": nn.Linear(32, 32)})
            for _ in range(2)
        )
        self.head = nn.Linear(32, 20, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for part in self.parts:
            qkv = part["qkv"](part["norm"](hidden)).view(*tokens.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
            hidden = hidden + F.gelu(part["out"](mixed.transpose(1, 2).flatten(2)))
        return self.head(hidden)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
        self.head = nn.Linear(32, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(inputs).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.lstm(inputs)[0])[0][:, -1])


MODELS = {
    "convolutions": (convolutions, lambda: (torch.randn(8, 1, 8, 8), torch.randint(10, (8,)))),
    "decoder": (Decoder, lambda: (torch.randint(20, (4, 16)), torch.randint(20, (4, 16)))),
    "encoder": (Encoder, lambda: (torch.randn(4, 12, 32), torch.randint(5, (4,)))),
    "recurrent": (Recurrent, lambda: (torch.randn(4, 6, 8), torch.randint(5, (4,)))),
}


def train(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], device: str) -> list[float]:
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs.to(device)).flatten(0, -2), targets.to(device).flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_the_cpu(name):
    make, draw = MODELS[name]
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(5)
        model, batch = make(), draw()
        results.append(train(model, [batch] * 20, device))
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=2e-3)
    assert results[1][-1] < results[1][0] / 2


def noisy_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.3, batch_first=True, activation="gelu")
    return nn.Sequential(layer, nn.Flatten(), nn.Dropout(0.2), nn.Linear(12 * 32, 5))


def test_dropout_trains():
    """Its numbers are not the CPU's: the loss falls, the same from the same seed, and without dropout is the CPU's."""
    inputs, targets = torch.randn(4, 12, 32), torch.randint(5, (4,))
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        model = noisy_encoder()
        start = [x.detach().clone() for x in model.parameters()]
        losses.append(train(model, [(inputs, targets)] * 20, DEVICE))
        with torch.no_grad():
            trained = model.eval()(inputs.to(DEVICE)).cpu()
            expected = model.cpu()(inputs)
        torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-4)
        assert any(not one.equal(other) for one, other in zip(start, model.parameters(), strict=True))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0] / 2


def train_with_mixed_precision(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], device: str) -> list[float]:
    model, (inputs, targets) = model.to(device), (x.to(device) for x in batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=4)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert scaler.get_scale() == 2.0**12
    return losses


@pytest.mark.parametrize("name", ["convolutions", "decoder", "encoder"])
def test_mixed_precision_with_clipping_trains_as_on_the_cpu(name):
    make, draw = MODELS[name]
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(5)
        model, batch = make(), draw()
        results.append(train_with_mixed_precision(model, batch, device))
    torch.testing.assert_close(results[1], results[0], rtol=5e-2, atol=2e-2)
    assert results[1][-1] < results[1][0]
