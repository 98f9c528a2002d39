"""Streams and events inside of compiled code order its work as they do outside."""

from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables import streams as dynamo_streams
from torch_conformance import needs
from torch_conformance.suite.compile._support import compiled

pytestmark = needs.feature("torch_backend")

SIZE = 100_000
WORK = 20


@pytest.mark.parametrize("where", ["made outside", "made inside"])
def test_a_side_stream(device: str, backend: ModuleType, where: str) -> None:
    """Compiled code moves work to a side stream and back: it waits for the work before, and the work after for it."""
    outside = backend.Stream()

    def run(x: Tensor) -> Tensor:
        x = x + 1
        side = outside if where == "made outside" else backend.Stream()
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            x = x * 2
        backend.current_stream().wait_stream(side)
        return x + 1

    fast = compiled(run)
    for number in (1, 2, 3):
        x = torch.full((SIZE,), float(number), device=device)
        result = fast(x).cpu()
        assert result.unique().tolist() == [2 * (number + 1) + 1], f"run {number} did not keep the order"


def test_events(device: str, backend: ModuleType) -> None:
    """An event that compiled code records on one stream makes another wait."""
    side = backend.Stream()

    def run(x: Tensor) -> Tensor:
        x = x + 1
        ready, done = torch.Event(device=device), torch.Event(device=device)
        ready.record(backend.current_stream())
        side.wait_event(ready)
        with backend.stream(side):
            x = x * 2
        done.record(side)
        backend.current_stream().wait_event(done)
        return x + 1

    fast = compiled(run)
    for number in (1, 2, 3):
        x = torch.full((SIZE,), float(number), device=device)
        assert fast(x).cpu().unique().tolist() == [2 * (number + 1) + 1], f"run {number} did not keep the order"


def test_the_current_stream_when_it_runs(device: str, backend: ModuleType) -> None:
    """Compiled code that waits for the current stream waits for the one that is current when it runs."""
    if not hasattr(dynamo_streams, "synchronize_stream"):
        needs.not_offered("this version of torch loses Stream.synchronize in compiled code, on every device")

    def run(x: Tensor) -> Tensor:
        y = x * 2
        backend.current_stream().synchronize()
        return y

    fast = compiled(run)
    x = torch.ones(SIZE, device=device)
    fast(x)
    side = backend.Stream()
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        for _ in range(WORK):
            x = x * 1
        before = side.record_event()
        result = fast(x)
        assert backend.current_stream() == side, "the current stream is not the one before"
        assert before.query(), "the stream that was current had work left"
    assert result.cpu().unique().tolist() == [2]


def test_memory_used_on_another_stream(device: str, backend: ModuleType) -> None:
    """Memory that compiled code marks as used on a side stream is not given away while that stream has work for it."""
    if not hasattr(TensorVariable, "method_record_stream"):
        needs.not_offered("this version of torch compiles record_stream on no device")
    side = backend.Stream()

    def run(x: Tensor) -> Tensor:
        y = x + 1
        side.wait_stream(backend.current_stream())
        with backend.stream(side):
            z = y * 2
        y.record_stream(side)
        return z

    result = compiled(run)(torch.ones(SIZE, device=device))
    torch.full((SIZE,), -1.0, device=device)
    side.synchronize()
    assert result.cpu().unique().tolist() == [4]
