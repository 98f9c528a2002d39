"""Results written to tensors that the caller gives: ``out=``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.routes import has
from torch_conformance.suite.tensor._support import assert_alike, assert_close, assert_values, check_refused, each

OUT: dict[str, Callable[..., Any]] = {
    "add": lambda x, **k: torch.add(x, x, **k),
    "matmul": lambda x, **k: torch.matmul(x, x.t(), **k),
    "sum": lambda x, **k: torch.sum(x, 1, **k),
    "cat": lambda x, **k: torch.cat([x, x], **k),
    "stack": lambda x, **k: torch.stack([x, x], **k),
    "arange": lambda x, **k: torch.arange(5.0, **k),
    "cumsum": lambda x, **k: torch.cumsum(x, 0, **k),
    "nonzero": lambda x, **k: torch.nonzero(x, **k),
    "index_select": lambda x, **k: torch.index_select(x, 1, torch.tensor([1, 0], device=x.device), **k),
    "linalg_inv": lambda x, **k: torch.linalg.inv(x @ x.t() + torch.eye(3, device=x.device), **k),
    "svdvals": lambda x, **k: torch.linalg.svdvals(x, **k),
    "lgamma": lambda x, **k: torch.lgamma(x.t(), **k),
    "masked_select": lambda x, **k: torch.masked_select(x, x > 2, **k),
    "bucketize": lambda x, **k: torch.bucketize(x, torch.tensor([1.0, 2.0], device=x.device), **k),
}


@each("operator", OUT)
def test_out(device: str, operator: Callable[..., Any]) -> None:
    """An operator with ``out=`` returns that tensor, with its result in it, resized if it was empty."""

    def run(where: str, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        x = torch.arange(12.0).reshape(3, 4).to(where)
        out = torch.empty(size, dtype=operator(x).dtype, device=where)
        return operator(x, out=out), out

    size = run("cpu", (0,))[0].shape
    for start in ((0,), tuple(size)):
        expected, _ = run("cpu", start)
        result, out = run(device, start)
        assert result is out, "the operator returns another tensor than out"
        # How an empty tensor is laid out that is resized to the result, PyTorch's tests do not ask.
        if start != (0,) or has("torch_backend"):
            assert_alike(out, expected, device, "out")
        assert out.shape == expected.shape, f"out has shape {tuple(out.shape)}, on the CPU {tuple(expected.shape)}"
        assert_close(out, expected, device, "out")


def test_out_of_several_tensors(device: str) -> None:
    """An operator with several results writes and returns all tensors it is given."""
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]], device=device)
    calls: list[Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]] = [
        lambda out: torch.sort(x, out=out),
        lambda out: torch.topk(x, 1, out=out),
    ]
    for call in calls:
        out = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
        result = call(out)
        assert all(one is other for one, other in zip(result, out, strict=True)), "other tensors than out came back"
    assert_values(out[0], [[3], [5]], "the greatest values")
    assert_values(out[1], [[0], [1]], "their places")
    q, r = torch.empty(0, device=device), torch.empty(0, device=device)
    torch.linalg.qr(x, out=(q, r))
    assert_close(q @ r, x.cpu(), device, "Q times R")


@needs.feature("storage")
def test_out_keeps_memory_and_layout(device: str) -> None:
    """A result goes into ``out`` where it lies, strided as it is, and nothing beside it changes."""
    buffer = torch.zeros(4, 6, device=device)
    out = buffer[:, ::2].t()
    x = torch.arange(12.0).reshape(3, 4).to(device)
    for function in (torch.exp, torch.lgamma, torch.neg):
        assert function(x, out=out) is out, f"{function.__name__} returns another tensor than out"
        assert out.stride() == (2, 6), f"out has strides {out.stride()} now"
        assert out.data_ptr() == buffer.data_ptr(), "out was moved to other memory"
        assert_close(out, function(x.cpu()), device, f"out of {function.__name__}")
        assert bool((buffer[:, 1::2] == 0).all()), f"{function.__name__} wrote beside out"


def test_out_of_another_size_is_resized_with_a_warning(device: str) -> None:
    """``out`` of a wrong size is resized, be it to less or more memory, and PyTorch warns."""
    x, out = torch.ones(3, device=device), torch.zeros(5, device=device)
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(x, x, out=out)
    assert_values(out, [2, 2, 2], "out after it became smaller")
    larger = torch.ones(1000, device=device)
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(larger, larger, out=out)
    assert out.shape == (1000,), f"out has shape {tuple(out.shape)} after it became larger"
    assert bool((out == 2).all()), "out after it became larger does not hold the result"


def test_out_checks(device: str) -> None:
    """``out`` of a dtype that cannot hold the result raises."""
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=torch.empty(3, dtype=torch.int64, device=device))


@needs.feature("memory of its own")
def test_out_is_where_the_inputs_are(device: str) -> None:
    """``out`` on another device than the inputs raises."""
    x, host = torch.ones(3, device=device), torch.ones(3)
    uses = {
        "out on the CPU": lambda: torch.add(x, x, out=torch.empty(3)),
        "out on the device": lambda: torch.add(host, host, out=torch.empty(3, device=device)),
    }
    check_refused(uses, "out is on another device", "Expected all tensors to be on the same device")
