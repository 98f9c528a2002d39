"""Calls on tensors so small that the time is what PyTorch and torch_backend add to the arithmetic."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from benchmarks.result import Row, geomean_row, time_row
from benchmarks.timer import Work, compare

NATIVE = torch.device("cpu")


def run(device: torch.device) -> list[Row]:
    """Nanoseconds of one call of each operator."""
    with torch.no_grad():
        device_ops, native_ops = _operators(device), _operators(NATIVE)
        rows = [time_row(name, compare(device_ops[name], native_ops[name]), "ns") for name in native_ops]
        rows += [time_row(name, compare(*sides), "ns") for name, sides in _transfers(device).items()]
    return [*rows, geomean_row(rows)]


def _operators(device: torch.device) -> dict[str, Work]:
    """The same calls for either side. A partial adds less to the time than a lambda would."""
    generator = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    a, b, into = matrix(4, 4), matrix(4, 4), matrix(4, 4)
    weight, bias, vector = matrix(8, 4), matrix(8), matrix(16)
    scalar, index = matrix(1)[0], torch.tensor([2, 0, 1], device=device)
    mask, row, column = a > 0, matrix(4), torch.tensor([[1], [0], [3], [2]], device=device)
    positive = matrix(4, 4).sigmoid()
    query, image = matrix(1, 2, 4, 8), matrix(1, 2, 4, 4)
    found, scale, growth = matrix(1), matrix(1), torch.zeros(1, dtype=torch.int32, device=device)
    calls: dict[str, Callable[[], object]] = {
        "add": partial(torch.add, a, b),
        "mul_": partial(into.mul_, 1.0),
        "relu": partial(torch.relu, a),
        "matmul 4x4": partial(torch.matmul, a, b),
        "linear": partial(F.linear, a, weight, bias),
        "sum": partial(torch.sum, a),
        "softmax": partial(torch.softmax, a, 1),
        "layer_norm": partial(F.layer_norm, a, (4,)),
        "cat": partial(torch.cat, (a, b)),
        "index_select": partial(torch.index_select, a, 0, index),
        "view": partial(a.view, 16),
        "t": partial(torch.t, a),
        "copy_": partial(into.copy_, a),
        "item": partial(scalar.item),
        "sort": partial(torch.sort, vector),
        "nonzero": partial(torch.nonzero, vector),
        "empty": partial(torch.empty, (4, 4), device=device),
        "dropout": partial(F.dropout, a),
        "randn": partial(torch.randn, (4, 4), device=device),
        "rand": partial(torch.rand, (4, 4), device=device),
        "randint": partial(torch.randint, 10, (4, 4), device=device),
        "randperm": partial(torch.randperm, 16, device=device),
        "bernoulli": partial(torch.bernoulli, positive),
        "multinomial": partial(torch.multinomial, positive, 1),
        "log_sigmoid": partial(F.logsigmoid, a),
        "gelu": partial(F.gelu, a),
        "silu": partial(F.silu, a),
        "hardswish": partial(F.hardswish, a),
        "glu": partial(F.glu, a),
        "rms_norm": partial(F.rms_norm, a, (4,)),
        "logsumexp": partial(torch.logsumexp, a, 1),
        "std": partial(torch.std, a),
        "aminmax": partial(torch.aminmax, a),
        "argmax": partial(torch.argmax, a),
        "topk": partial(torch.topk, vector, 3),
        "argsort": partial(torch.argsort, vector),
        "unique": partial(torch.unique, index),
        "bincount": partial(torch.bincount, index),
        "searchsorted": partial(torch.searchsorted, vector, row),
        "cumsum": partial(torch.cumsum, a, 1),
        "cumprod": partial(torch.cumprod, a, 1),
        "where": partial(torch.where, mask, a, b),
        "masked_fill": partial(torch.masked_fill, a, mask, 0.0),
        "a[mask]": partial(a.__getitem__, mask),
        "a[index]": partial(a.__getitem__, index),
        "a[mask] = 0": partial(into.__setitem__, mask, 0.0),
        "a[index] = b": partial(into.__setitem__, index, b[:3]),
        "a[:, 1:2] = b": partial(into.__setitem__, (slice(None), slice(1, 2)), b[:, :1]),
        "gather": partial(torch.gather, a, 1, column),
        "scatter": partial(torch.scatter, a, 1, column, 1.0),
        "index_add_": partial(into.index_add_, 0, index, b[:3]),
        "take_along_dim": partial(torch.take_along_dim, a, column, 1),
        "stack": partial(torch.stack, (a, b)),
        "repeat_interleave": partial(torch.repeat_interleave, row, 2),
        "tile": partial(torch.tile, row, (2,)),
        "pad": partial(F.pad, a, (1, 1)),
        "one_hot": partial(F.one_hot, index, 4),
        "embedding": partial(F.embedding, index, a),
        "cross_entropy": partial(F.cross_entropy, a[:3], index),
        "attention": partial(F.scaled_dot_product_attention, query, query, query),
        "attention, causal": partial(F.scaled_dot_product_attention, query, query, query, is_causal=True),
        "conv2d": partial(F.conv2d, image, image),
        "max_pool2d": partial(F.max_pool2d, image, 2),
        "interpolate": partial(F.interpolate, image, scale_factor=2.0),
        "unfold": partial(F.unfold, image, 2),
        "einsum": partial(torch.einsum, "ij,jk->ik", a, b),
        "outer": partial(torch.outer, row, row),
        "dot": partial(torch.dot, row, row),
        "linalg.norm": partial(torch.linalg.norm, a),
        "linalg.inv": partial(torch.linalg.inv, matrix(4, 4)),
        "to(bfloat16)": partial(a.to, torch.bfloat16),
        "a + 1 (int)": partial(torch.add, index, 1),
        "a / b (int)": partial(torch.div, index, 2),
        "a == b": partial(torch.eq, a, b),
        "any": partial(torch.any, mask),
        "allclose": partial(torch.allclose, a, a),
        "zeros": partial(torch.zeros, (4, 4), device=device),
        "full": partial(torch.full, (4, 4), 2.0, device=device),
        "arange": partial(torch.arange, 8, device=device),
        "tensor": partial(torch.tensor, 2.0, device=device),
        "eye": partial(torch.eye, 4, device=device),
        "tril": partial(torch.tril, a),
        "clone": partial(torch.clone, a),
        "contiguous": partial(a.t().contiguous),
        "zero_": partial(into.zero_),
        "normal_": partial(into.normal_),
        "chunk": partial(torch.chunk, a, 2),
        "permute": partial(a.permute, 1, 0),
        "reshape": partial(a.t().reshape, 16),
        "expand": partial(row.expand, 4, 4),
        "tolist": partial(row.tolist),
        "bool": partial(mask[0, 0].__bool__),
        "_amp_update_scale_": partial(torch._amp_update_scale_, scale, growth, found, 2.0, 0.5, 100),
    }
    return calls


def _transfers(device: torch.device) -> dict[str, tuple[Work, Work]]:
    """To and from the device, against a copy within the host's memory."""
    host = torch.randn(4, 4)
    there = host.to(device)
    return {
        "to(device), against clone": (partial(host.to, device), host.clone),
        "cpu(), against clone": (there.cpu, host.clone),
    }
