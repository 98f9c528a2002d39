"""Text from a small GPT with a cache of keys and values: a token at a time, by sampling and by beam search."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.result import Row, time_row
from benchmarks.timer import compare

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 256, 128, 4, 2, 32


def run(device: torch.device) -> list[Row]:
    """Milliseconds of one text."""
    rows = []
    for name, text in {"sampling": _sample, "beam search": _search}.items():
        sides = [partial(text, _gpt(where)) for where in (device, torch.device("cpu"))]
        rows.append(time_row(name, compare(*sides, rounds=61, round_s=0.002), "ms"))
    return rows


class Block(nn.Module):
    """Attention over all tokens so far, and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
        """``x``: a token per row, which is added to ``keys`` and ``values``."""
        heads = self.inputs(self.before(x)).view(x.shape[0], 1, 3 * HEADS, -1).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=1)
        keys[:, :, position : position + 1] = key
        values[:, :, position : position + 1] = value
        seen = F.scaled_dot_product_attention(query, keys[:, :, : position + 1], values[:, :, : position + 1])
        x = x + self.output(seen.transpose(1, 2).reshape(x.shape))
        return x + self.network(self.between(x))


class GPT(nn.Module):
    """The next token's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def empty_cache(self, rows: int) -> list[torch.Tensor]:
        """Keys and values of every block."""
        where = self.head.weight.device
        return [torch.zeros(rows, HEADS, LENGTH, WIDTH // HEADS, device=where) for _ in range(2 * LAYERS)]

    def forward(self, token: torch.Tensor, cache: list[torch.Tensor], position: int) -> torch.Tensor:
        """``token``: [rows, 1]."""
        x = self.words(token) + self.positions.weight[position]
        for index, block in enumerate(self.blocks):
            x = block(x, cache[2 * index], cache[2 * index + 1], position)
        return self.head(self.norm(x))[:, -1]


def _gpt(device: torch.device) -> GPT:
    torch.manual_seed(0)
    return GPT().to(device).eval()


@torch.no_grad()
def _sample(model: GPT) -> None:
    token = torch.zeros(1, 1, dtype=torch.long, device=model.head.weight.device)
    cache = model.empty_cache(1)
    text = [token]
    for position in range(LENGTH):
        logits = model(token, cache, position) / 0.8
        best = torch.topk(logits, 16).values
        logits = logits.masked_fill(logits < best[:, -1:], -torch.inf)
        token = torch.multinomial(F.softmax(logits, dim=-1), 1)
        text.append(token)
    torch.cat(text, dim=1)


@torch.no_grad()
def _search(model: GPT, beams: int = 4) -> None:
    where = model.head.weight.device
    token = torch.zeros(beams, 1, dtype=torch.long, device=where)
    scores = torch.tensor([0.0] + [-1e9] * (beams - 1), device=where)
    cache = model.empty_cache(beams)
    texts = token
    for position in range(LENGTH):
        all_scores = scores[:, None] + F.log_softmax(model(token, cache, position), dim=-1)
        scores, chosen = torch.topk(all_scores.view(-1), beams)
        origin = torch.div(chosen, WORDS, rounding_mode="floor")
        token = (chosen % WORDS)[:, None]
        cache = [part.index_select(0, origin) for part in cache]
        texts = torch.cat((texts.index_select(0, origin), token), dim=1)
