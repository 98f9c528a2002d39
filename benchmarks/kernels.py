"""Kernels on large tensors, training steps, and what a small call costs: where a device's own kernels are compared.

With ``TORCH_BACKEND_XCPU_MODULES=1`` and on ``ocl`` these are the kernels that the device compiles.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import training
from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare

ELEMENTS = 16 << 20
NATIVE = torch.device("cpu")


def run(device: torch.device) -> list[Row]:
    """Milliseconds of one call or one step, microseconds of one small call."""
    with torch.no_grad():
        ours, native = _kernels(device), _kernels(NATIVE)
    rows = [time_row(name, compare(ours[name], native[name], rounds=9, round_s=0.01), "ms") for name in native]
    del ours, native
    for name, step in _steps().items():
        rows.append(time_row(name, compare(step(device), step(NATIVE), rounds=21, round_s=0.01), "ms"))
    with torch.no_grad():
        ours, native = _calls(device), _calls(NATIVE)
        rows += [time_row(name, compare(ours[name], native[name]), "us") for name in native]
    return rows


def _kernels(device: torch.device) -> dict[str, Work]:
    generator = torch.Generator().manual_seed(0)

    def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    flat, other, out = values(ELEMENTS), values(ELEMENTS), values(ELEMENTS)
    rows, weight, bias = values(4096, 1024), values(1024), values(1024)
    square, narrow, tall = values(1024, 1024), values(1 << 20, 4), values(4096, 4096)
    image, kernel, depthwise = values(32, 16, 32, 32), values(32, 16, 3, 3), values(16, 1, 3, 3)
    normed = torch.native_layer_norm(rows, [1024], weight, bias, 1e-5)
    softened, pooled = rows.softmax(1), F.max_pool2d_with_indices(image, 2)
    index = torch.randint(4096, (8192,), generator=generator).to(device)
    calls: dict[str, Work] = {
        "add, 64 MiB": partial(torch.add, flat, other, out=out),
        "exp, 64 MiB": partial(torch.exp, flat, out=out),
        "sum, 64 MiB": partial(torch.sum, flat),
        "softmax": partial(torch.softmax, rows, 1),
        "softmax, backward": partial(torch._softmax_backward_data, rows, softened, 1, torch.float32),
        "layer_norm": partial(F.layer_norm, rows, (1024,), weight, bias),
        "layer_norm, backward": partial(
            torch.ops.aten.native_layer_norm_backward,
            *(rows, rows, [1024], normed[1], normed[2], weight, bias, [True, True, True]),
        ),
        "matmul 1024": partial(torch.mm, square, square),
        "matmul 1024, transposed": partial(torch.mm, square, square.t()),
        "sigmoid": partial(torch.sigmoid, rows),
        "gelu": partial(F.gelu, rows),
        "add, transposed": partial(torch.add, tall, tall.t()),
        "contiguous, transposed": tall.t().contiguous,
        "sum of columns": partial(torch.sum, rows, 0),
        "sum of narrow columns": partial(torch.sum, narrow, 0),
        "sum of narrow rows": partial(torch.sum, narrow, 1),
        "normal_": rows.clone().normal_,
        "uniform_": rows.clone().uniform_,
        "dropout": partial(F.dropout, rows),
        "cat": partial(torch.cat, (rows, rows), 1),
        "index_select": partial(torch.index_select, tall, 0, index),
        "embedding, backward": partial(
            torch.ops.aten.embedding_dense_backward, tall[:2048].repeat(4, 1), index, 4096, -1, False
        ),
        "sort": partial(torch.sort, values(256, 4096)),
        "topk": partial(torch.topk, values(256, 4096), 8),
        "cumsum": partial(torch.cumsum, rows, 1),
        "max_pool2d": partial(F.max_pool2d, image, 2),
        "max_pool2d, backward": partial(
            torch.ops.aten.max_pool2d_with_indices_backward,
            *(pooled[0], image, [2, 2], [2, 2], [0, 0], [1, 1], False, pooled[1]),
        ),
        "batch_norm": partial(F.batch_norm, image, None, None, training=True),
        "conv2d": partial(F.conv2d, image, kernel, padding=1),
        "conv2d, depthwise": partial(F.conv2d, image, depthwise, padding=1, groups=16),
        "interpolate, nearest": partial(F.interpolate, image, scale_factor=2.0),
        "interpolate, bilinear": partial(F.interpolate, image, scale_factor=2.0, mode="bilinear"),
    }
    for dtype in (torch.float16, torch.bfloat16):
        half = values(ELEMENTS, dtype=dtype)
        calls[f"add, {str(dtype).removeprefix('torch.')}"] = partial(torch.add, half, half)
    return calls


def _steps() -> dict[str, Callable[[torch.device], Work]]:
    return {
        "CNN step": training.cnn,
        "MLP step, SGD": partial(_mlp, torch.optim.SGD),
        "MLP step, AdamW": partial(_mlp, torch.optim.AdamW),
        "LSTM step": partial(training.recurrent, nn.LSTM),
        "encoder layer step": training.transformer,
    }


def _mlp(optimizer: Callable[..., torch.optim.Optimizer], device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    inputs, targets = torch.randn(64, 784).to(device), torch.randint(10, (64,)).to(device)
    return partial(training.step, model, inputs, targets, optimizer(model.parameters(), lr=0.01), F.cross_entropy)


def _calls(device: torch.device) -> dict[str, Work]:
    small = torch.randn(16).to(device)
    matrix, into = torch.randn(4, 4).to(device), small.clone()
    return {
        "add of 16, out=": partial(torch.add, small, small, out=into),
        "add of 16": partial(torch.add, small, small),
        "a + 2": partial(torch.add, small, 2),
        "add_ of 16": partial(into.add_, small),
        "relu of 16": partial(torch.relu, small),
        "add of 4x4, transposed": partial(torch.add, matrix, matrix.t()),
        "sum of 16": partial(torch.sum, small),
        "mm of 4x4": partial(torch.mm, matrix, matrix),
        "softmax of 4x4": partial(torch.softmax, matrix, 1),
        "copy_ of 16": partial(into.copy_, small),
    }
