"""Training steps of models with the shapes of well-known ones, under autocast to bfloat16 where there is some.

GPT-2 small (Radford et al. 2019), BERT base (Devlin et al. 2019), ResNet-50 (He et al. 2015), and Llama 3.2 1B (Meta
2024) with 4 of its 16 layers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_conformance.measure.timing import Work


@dataclass(frozen=True)
class Text:
    """Sizes of a language model."""

    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    batch: int
    length: int

    def scaled(self, scale: float) -> "Text":
        """A smaller one of the same kind."""
        if scale == 1:
            return self
        return Text(2, 64, 4, min(4, self.groups), 128, 512, 2, 64)


GPT2 = Text(12, 768, 12, 12, 3072, 50257, 8, 1024)
BERT = Text(12, 768, 12, 12, 3072, 30522, 16, 512)
LLAMA = Text(4, 2048, 32, 8, 8192, 128256, 2, 1024)


class Attention(nn.Module):
    """Heads that share keys and values in groups."""

    def __init__(self, sizes: Text, causal: bool) -> None:  # noqa: D107
        super().__init__()
        self.heads, self.groups, self.causal = sizes.heads, sizes.groups, causal
        size = sizes.width // sizes.heads
        self.q, self.kv = nn.Linear(sizes.width, sizes.width), nn.Linear(sizes.width, 2 * size * sizes.groups)
        self.out = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        grouped = self.groups != self.heads
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=grouped)
        result: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return result


class Gated(nn.Module):
    """The inner layer of Llama."""

    def __init__(self, sizes: Text) -> None:  # noqa: D107
        super().__init__()
        self.gate, self.up = (nn.Linear(sizes.width, sizes.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


class Layer(nn.Module):
    """Attention and an inner layer, each after a norm and beside what it is given."""

    def __init__(self, sizes: Text, causal: bool, gated: bool) -> None:  # noqa: D107
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.norms = nn.ModuleList(norm(sizes.width) for _ in range(2))
        self.attention = Attention(sizes, causal)
        inner = nn.Sequential(nn.Linear(sizes.width, sizes.inner), nn.GELU(), nn.Linear(sizes.inner, sizes.width))
        self.inner = Gated(sizes) if gated else inner

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = x + self.attention(self.norms[0](x))
        result: Tensor = x + self.inner(self.norms[1](x))
        return result


class Language(nn.Module):
    """A language model."""

    def __init__(self, sizes: Text, *, causal: bool, gated: bool) -> None:  # noqa: D107
        super().__init__()
        self.words, self.places = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(sizes.length, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes, causal, gated) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:  # noqa: D102
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.norm(x) @ self.words.weight.t()
        return result


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, given: int, width: int, stride: int) -> None:  # noqa: D107
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        same = given == 4 * width and stride == 1
        short = nn.Sequential(nn.Conv2d(given, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Identity() if same else short

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        result: Tensor = self.body(x) + self.short(x)
        return result.relu()


def _resnet(scale: float) -> nn.Module:
    width = 64 if scale == 1 else 8
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    ]
    given = width
    for step, blocks in enumerate((3, 4, 6, 3) if scale == 1 else (1, 1)):
        for block in range(blocks):
            layers.append(Bottleneck(given, width << step, 2 if step and not block else 1))
            given = 4 * (width << step)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000))


def _language(device: str, sizes: Text, *, causal: bool, gated: bool, compiled: bool = False) -> Work:
    model: nn.Module = Language(sizes, causal=causal, gated=gated).to(device)
    if compiled:
        model = torch.compile(model)  # type: ignore[assignment]
    words = torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length + 1)).to(device)
    given, wanted = words[:, :-1].contiguous(), words[:, 1:].contiguous()
    return _step(device, model, given, lambda out: F.cross_entropy(out.view(-1, sizes.vocabulary), wanted.view(-1)))


def _images(device: str, scale: float) -> Work:
    size, batch = (224, 32) if scale == 1 else (32, 4)
    images, wanted = torch.randn(batch, 3, size, size).to(device), torch.randint(0, 1000, (batch,)).to(device)
    return _step(device, _resnet(scale).to(device), images, lambda out: F.cross_entropy(out, wanted))


def _step(device: str, model: nn.Module, given: Tensor, loss_of: Callable[[Tensor], Tensor]) -> Work:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    casts = torch.amp.is_autocast_available(device)

    def step() -> None:
        if casts:
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = loss_of(model(given))
        else:
            loss = loss_of(model(given))
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def works(device: str, scale: float) -> Iterator[tuple[str, int, Work]]:
    """Name, bytes, which are 0, and one step. ``scale``: 1 for the real sizes, else small ones."""
    torch.manual_seed(0)
    yield "GPT-2 small, step", 0, _language(device, GPT2.scaled(scale), causal=True, gated=False)
    yield "BERT base, step", 0, _language(device, BERT.scaled(scale), causal=False, gated=False)
    yield "Llama 3.2 1B, 4 layers, step", 0, _language(device, LLAMA.scaled(scale), causal=True, gated=True)
    yield "ResNet-50, step", 0, _images(device, scale)
    compiled = _language(device, GPT2.scaled(scale), causal=True, gated=False, compiled=True)
    yield "GPT-2 small, compiled step", 0, compiled
