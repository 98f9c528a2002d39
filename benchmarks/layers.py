"""Common layers and losses on small inputs: forward and backward, and inference."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.result import Row, geomean_row, time_row
from benchmarks.timer import Work, compare

Run = Callable[..., torch.Tensor]
Inputs = tuple[torch.Tensor, ...]


def run(device: torch.device) -> list[Row]:
    """Microseconds of one forward and backward, or of one forward where it says inference."""
    cpu = torch.device("cpu")
    rows = []
    for name, (make, inputs) in TRAINED.items():
        sides = [_training(make, inputs, where) for where in (device, cpu)]
        rows.append(time_row(name, compare(*sides, rounds=101), "us"))
    for name, (make, inputs) in SERVED.items():
        sides = [_inference(make, inputs, where) for where in (device, cpu)]
        rows.append(time_row(f"{name}, inference", compare(*sides, rounds=101), "us"))
    return [*rows, geomean_row(rows)]


def _randn(*shapes: tuple[int, ...]) -> Inputs:
    return tuple(torch.randn(shape) for shape in shapes)


def _function(function: Run) -> Callable[[], Run]:
    return lambda: function


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask > 0)


def _cell(kind: Callable[[int, int], nn.Module]) -> Callable[[], Run]:
    def make() -> Run:
        cell = kind(16, 16)

        def call(x: torch.Tensor) -> torch.Tensor:
            state = cell(x)
            return state[0] if isinstance(state, tuple) else state

        call.__self__ = cell  # type: ignore[attr-defined]
        return call

    return make


SDPA = F.scaled_dot_product_attention
HEADS = _randn((2, 4, 16, 16), (2, 4, 16, 16), (2, 4, 16, 16))

TRAINED: dict[str, tuple[Callable[[], Run], Inputs]] = {
    "dropout": (_function(partial(F.dropout, p=0.5)), _randn((16, 32))),
    "logsigmoid": (_function(F.logsigmoid), _randn((16, 32))),
    "gelu": (_function(F.gelu), _randn((16, 32))),
    "silu": (_function(F.silu), _randn((16, 32))),
    "softplus": (_function(F.softplus), _randn((16, 32))),
    "glu": (_function(F.glu), _randn((16, 32))),
    "prelu": (_function(F.prelu), _randn((16, 32), (1,))),
    "log_softmax": (_function(partial(F.log_softmax, dim=1)), _randn((16, 32))),
    "layer_norm": (lambda: nn.LayerNorm(32), _randn((16, 32))),
    "rms_norm": (lambda: nn.RMSNorm(32), _randn((16, 32))),
    "group_norm": (lambda: nn.GroupNorm(4, 16), _randn((4, 16, 8))),
    "batch_norm": (lambda: nn.BatchNorm1d(32), _randn((16, 32))),
    "instance_norm": (lambda: nn.InstanceNorm2d(8), _randn((2, 8, 8, 8))),
    "conv1d": (lambda: nn.Conv1d(8, 8, 3), _randn((4, 8, 16))),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 4, 3), _randn((2, 4, 8, 8))),
    "max_pool2d": (_function(partial(F.max_pool2d, kernel_size=2)), _randn((2, 4, 8, 8))),
    "avg_pool2d": (_function(partial(F.avg_pool2d, kernel_size=2)), _randn((2, 4, 8, 8))),
    "interpolate bilinear": (
        _function(partial(F.interpolate, scale_factor=2.0, mode="bilinear")),
        _randn((2, 4, 8, 8)),
    ),
    "interpolate bicubic": (_function(partial(F.interpolate, scale_factor=2.0, mode="bicubic")), _randn((2, 4, 8, 8))),
    "pad reflect": (_function(partial(F.pad, pad=(1, 1, 1, 1), mode="reflect")), _randn((2, 4, 8, 8))),
    "unfold": (_function(partial(F.unfold, kernel_size=3)), _randn((2, 4, 8, 8))),
    "embedding": (lambda: nn.Embedding(50, 16), (torch.randint(50, (8, 12)),)),
    "embedding_bag": (lambda: nn.EmbeddingBag(50, 16), (torch.randint(50, (8, 12)),)),
    "cross_entropy": (_function(F.cross_entropy), (torch.randn(16, 10), torch.randint(10, (16,)))),
    "bce_with_logits": (_function(F.binary_cross_entropy_with_logits), (torch.randn(16, 10), torch.rand(16, 10))),
    "mse_loss": (_function(F.mse_loss), _randn((16, 10), (16, 10))),
    "l1_loss": (_function(F.l1_loss), _randn((16, 10), (16, 10))),
    "huber_loss": (_function(F.huber_loss), _randn((16, 10), (16, 10))),
    "kl_div": (_function(partial(F.kl_div, reduction="batchmean")), _randn((16, 10), (16, 10))),
    "cosine_similarity": (_function(F.cosine_similarity), _randn((16, 32), (16, 32))),
    "normalize": (_function(F.normalize), _randn((16, 32))),
    "LSTMCell": (_cell(nn.LSTMCell), _randn((8, 16))),
    "GRUCell": (_cell(nn.GRUCell), _randn((8, 16))),
    "RNNCell": (_cell(nn.RNNCell), _randn((8, 16))),
    "attention": (_function(SDPA), HEADS),
    "attention, causal": (_function(partial(SDPA, is_causal=True)), HEADS),
    "attention, mask": (_function(_attention), (*HEADS, torch.randn(16, 16))),
    "einsum": (_function(partial(torch.einsum, "bij,bjk->bik")), _randn((4, 8, 8), (4, 8, 8))),
    "bilinear": (lambda: nn.Bilinear(8, 8, 8), _randn((4, 8), (4, 8))),
    "cumsum": (_function(partial(torch.cumsum, dim=1)), _randn((16, 32))),
    "mask": (_function(lambda x: x[x > 0]), _randn((16, 32))),
    "where": (_function(lambda x: torch.where(x > 0, x, x.neg())), _randn((16, 32))),
    "masked_fill": (_function(lambda x: x.masked_fill(x > 0, 0.0)), _randn((16, 32))),
    "gather": (_function(lambda x: x.gather(1, x.argsort(1))), _randn((16, 32))),
    "roll and flip": (_function(lambda x: x.roll(1, 1).flip(0)), _randn((16, 32))),
    "std": (_function(lambda x: x.std(1)), _randn((16, 32))),
    "logsumexp": (_function(lambda x: x.logsumexp(1)), _randn((16, 32))),
    "stack and split": (_function(lambda x: torch.stack(x.split(4, 1))), _randn((16, 32))),
    "cdist": (_function(torch.cdist), _randn((8, 4), (8, 4))),
    "complex": (_function(lambda x: torch.view_as_real(torch.polar(x, x) * 2)), _randn((16, 32))),
    "fft": (_function(lambda x: torch.fft.irfft(torch.fft.rfft(x))), _randn((16, 32))),
    "cholesky": (_function(lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(8, device=x.device))), _randn((8, 8))),
}

SERVED: dict[str, tuple[Callable[[], Run], Inputs]] = {
    "conv, batch norm, relu": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        _randn((1, 3, 16, 16)),
    ),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), _randn((2, 8, 32))),
    "attention": (lambda: _SelfAttention(), _randn((2, 8, 32))),
    "LSTM": (lambda: nn.LSTM(16, 16, num_layers=2), _randn((8, 2, 16))),
    "GRU": (lambda: nn.GRU(16, 16, num_layers=2), _randn((8, 2, 16))),
    "RNN": (lambda: nn.RNN(16, 16, num_layers=2), _randn((8, 2, 16))),
}


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return seen


def _module(call: Run) -> nn.Module | None:
    owner = getattr(call, "__self__", call)
    return owner if isinstance(owner, nn.Module) else None


def _training(make: Callable[[], Run], inputs: Inputs, device: torch.device) -> Work:
    torch.manual_seed(0)
    call = make()
    if (module := _module(call)) is not None:
        module.to(device)
    there = [x.to(device).requires_grad_(x.is_floating_point()) for x in inputs]
    leaves = [x for x in there if x.requires_grad]
    leaves += [] if module is None else list(module.parameters())
    gradient = torch.ones_like(call(*there))

    def work() -> None:
        torch.autograd.grad(call(*there), leaves, gradient, allow_unused=True)

    return work


def _inference(make: Callable[[], Run], inputs: Inputs, device: torch.device) -> Work:
    torch.manual_seed(0)
    call = make()
    if (module := _module(call)) is not None:
        module.to(device).eval()
    there = [x.to(device) for x in inputs]

    def work() -> None:
        with torch.inference_mode():
            call(*there)

    return work
