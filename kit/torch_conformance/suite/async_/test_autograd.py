"""Backward passes and streams: each operator's gradient is computed on the stream that the operator ran on."""

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_conformance import needs
from torch_conformance.suite.async_._support import assert_all, keep_busy, pinned
from torch_conformance.threads import in_threads

pytestmark = needs.feature("streams")


def test_backward_runs_on_the_forwards_stream(device: str, backend: ModuleType) -> None:
    """What ran forward on a side stream runs backward on it, though backward is called on the default stream."""
    side, seen = backend.Stream(), []
    x = torch.arange(100.0, device=device, requires_grad=True)
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        y = x * x
        y.register_hook(lambda _: seen.append(backend.current_stream()))
        loss = (y * 2).sum()
    backend.current_stream().wait_stream(side)
    loss.backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), torch.arange(100.0) * 4)
    assert seen == [side]


def test_gradients_are_safe_on_the_stream_that_called_backward(device: str, backend: ModuleType) -> None:
    """After backward() the calling stream may use every gradient, also those that a side stream computes late."""
    side = backend.Stream()
    weight = torch.ones(300, 300, device=device, requires_grad=True)
    for number in range(1, 4):
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            x = pinned(torch.full((300, 300), float(number))).to(device, non_blocking=True)
            y = weight * x

            def hold_up(gradient: Tensor) -> Tensor:
                keep_busy(device)
                return gradient

            y.register_hook(hold_up)
            loss = y.sum()
        backend.current_stream().wait_stream(side)
        loss.backward()
        assert weight.grad is not None
        gradient = weight.grad + 0
        assert_all(gradient, number, "a gradient that was used right after backward()")
        weight.grad = None


def test_backward_called_on_a_side_stream(device: str, backend: ModuleType) -> None:
    """A side stream that calls backward() for work of the default stream may use the gradients at once."""
    caller = backend.Stream()
    x = torch.ones(1000, device=device, requires_grad=True)
    loss = (x * 3).sum()
    caller.wait_stream(backend.current_stream())
    with backend.stream(caller):
        loss.backward()
        assert x.grad is not None
        gradient = x.grad * 2
    caller.synchronize()
    assert_all(gradient, 6, "a gradient that was used on the stream that called backward()")


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # which is what this is about
def test_a_leaf_that_two_streams_use(device: str, backend: ModuleType) -> None:
    """A weight that is used on two streams gets the sum of both gradients."""
    weight = torch.ones(10_000, device=device, requires_grad=True)
    main, streams = backend.current_stream(), [backend.Stream() for _ in range(3)]
    losses = []
    for number, stream in enumerate(streams, 1):
        stream.wait_stream(main)
        with backend.stream(stream):
            y = weight * number

            def hold_up(gradient: Tensor) -> Tensor:
                keep_busy(device, 3)
                return gradient

            y.register_hook(hold_up)
            losses.append(y.sum())
    for stream in streams:
        main.wait_stream(stream)
    torch.stack(losses).sum().backward()
    assert_all(weight.grad if weight.grad is not None else torch.zeros(1), 6, "the sum of gradients of three streams")


def test_accumulating_over_backward_passes(device: str, backend: ModuleType) -> None:
    """Gradients of passes on the default and on side streams, called one after another, add up."""
    weight = torch.ones(10_000, device=device, requires_grad=True)
    main = backend.current_stream()
    for number in range(4):
        stream = main if number % 2 else backend.Stream()
        stream.wait_stream(main)
        with backend.stream(stream):
            keep_busy(device, 3)
            (weight * 2).sum().backward()
        main.wait_stream(stream)
    assert weight.grad is not None
    assert_all(weight.grad, 8, "the sum of gradients of four passes")


def test_the_backward_of_a_custom_function(device: str, backend: ModuleType) -> None:
    """A function with its own backward finds the forward's stream current in it."""
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            seen.append(backend.current_stream())
            keep_busy(device, 3)
            return gradients[0] * 2

    side = backend.Stream()
    x = torch.ones(1000, device=device, requires_grad=True)
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        loss = Double.apply(x).sum()
    backend.current_stream().wait_stream(side)
    loss.backward()
    assert seen == [side]
    assert x.grad is not None
    assert_all(x.grad, 2, "the gradient of a custom function")


def test_backward_passes_of_many_threads(device: str, backend: ModuleType) -> None:
    """Threads that run forward and backward passes on streams of their own get their own gradients."""

    def work(number: int) -> None:
        with backend.stream(backend.Stream()):
            for _ in range(5):
                x = torch.full((1000,), float(number), device=device, requires_grad=True)
                (x * x).sum().backward()
                assert x.grad is not None
                assert_all(x.grad, 2 * number, f"a gradient of thread {number}")

    in_threads([lambda number=number: work(number) for number in range(1, 5)])


def test_a_prefetching_training_loop(device: str, backend: ModuleType) -> None:
    """Training on batches that a side stream copies ahead gives what training on batches in turn gives."""
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(16, 8, generator=generator) for _ in range(6)]
    start = torch.randn(1, 8, generator=generator)

    def train(prefetch: bool) -> Tensor:
        model = nn.Linear(8, 1, bias=False).to(device)
        with torch.no_grad():
            model.weight.copy_(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        side, main = backend.Stream(), backend.current_stream()
        for batch in data:
            if prefetch:
                with backend.stream(side):
                    keep_busy(device, 3)
                    x = pinned(batch).to(device, non_blocking=True)
                main.wait_stream(side)
                x.record_stream(main)
            else:
                x = batch.to(device)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            del x
            optimizer.step()
        return model.weight.detach().cpu()

    assert torch.equal(train(prefetch=True), train(prefetch=False)), "weights differ from those of batches in turn"


@needs.devices(2)
@pytest.mark.parametrize("index", [0, 1])
def test_a_backward_pass_over_two_devices(device: str, backend: ModuleType, index: int) -> None:
    """A backward pass through copies between devices orders both devices' work, whichever one is current."""
    x = torch.ones(5000, device=f"{device}:0", requires_grad=True)
    y = (x * 2).to(f"{device}:1")

    def hold_up(gradient: Tensor) -> Tensor:
        keep_busy(f"{device}:1", 5)
        return gradient

    y.register_hook(hold_up)
    loss = (y * 3).sum()
    with backend.device(index):
        loss.backward()
    assert x.grad is not None
    assert_all(x.grad, 6, "a gradient that came back from another device")
