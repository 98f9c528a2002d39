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
