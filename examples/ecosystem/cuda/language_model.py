"""A language model is trained as scripts for GPT-2 do, compiled: mixed precision, accumulated and clipped gradients."""

import math

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

DEVICE = "cuda"
WORDS, LENGTH, WIDTH, HEADS, LAYERS = 64, 32, 64, 4, 2


class Norm(nn.Module):
    """LayerNorm without a bias."""

    def __init__(self):
        """Of vectors of WIDTH."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        """Normalized vectors."""
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Block(nn.Module):
    """Attention to what came before, then two layers."""

    def __init__(self):
        """All linear layers are without a bias."""
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        """What the block makes of a batch of sequences."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for t in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).contiguous().view(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class LanguageModel(nn.Module):
    """The embedding of words and the head share their weights."""

    def __init__(self):
        """Random weights."""
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), Norm()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.words.weight = self.head.weight
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                depth = math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(weight, std=0.02 / depth)

    def forward(self, words, targets=None):
        """Scores and the loss; without targets, scores of what follows the last word."""
        x = self.words(words) + self.places(torch.arange(0, words.shape[1], dtype=torch.long, device=words.device))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        scores = self.head(x)
        return scores, F.cross_entropy(scores.view(-1, scores.size(-1)), targets.view(-1), ignore_index=-1)


def batch(generator):
    """Sequences that count in steps of 1 to 3, copied while the host goes on."""
    start, step = torch.randint(WORDS, (12, 1), generator=generator), torch.randint(1, 4, (12, 1), generator=generator)
    words = (start + step * torch.arange(LENGTH + 1)) % WORDS
    inputs, targets = words[:, :-1].contiguous().pin_memory(), words[:, 1:].contiguous().pin_memory()
    return inputs.to(DEVICE, non_blocking=True), targets.to(DEVICE, non_blocking=True)


def train(compiled, steps=20, accumulated=4):
    """Losses of each step, and one of evaluation at the end."""
    torch.manual_seed(1337)
    model = LanguageModel().to(DEVICE)
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    scaler = torch.amp.GradScaler(DEVICE, enabled=dtype is torch.float16)
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    others = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    if compiled:
        model = torch.compile(model)
    precision = torch.amp.autocast(device_type=DEVICE, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    words, targets = batch(generator)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min(1, (step + 1) / 5)
        for _ in range(accumulated):
            with precision:
                _, loss = model(words, targets)
                loss = loss / accumulated
            words, targets = batch(generator)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item() * accumulated)
    model.eval()
    with torch.no_grad(), precision:
        losses.append(model(words, targets)[1].item())
    return losses


torch.backends.cuda.matmul.allow_tf32 = True
eager, compiled = train(False), train(True)
assert not counters["graph_break"], counters["graph_break"]
assert counters["stats"]["unique_graphs"] == 2, counters["stats"]  # one of training, one of evaluation
assert compiled[-1] < 0.7 * compiled[0], compiled
torch.testing.assert_close(torch.tensor(compiled), torch.tensor(eager), rtol=5e-2, atol=5e-2)
