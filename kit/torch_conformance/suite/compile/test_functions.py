"""Compiled functions do what they do without: create, change, view, copy and draw."""

from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.compile._support import compiled


def test_new_tensors(device: str) -> None:
    """Tensors that compiled code creates lie on the device that it names, or on that of its input."""

    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.arange(4, device=device) * 2, x.new_ones(2) + 1, torch.zeros_like(x) - 1

    x = torch.ones(3, device=device)
    results = compiled(run)(x)
    assert {result.device for result in results} == {x.device}
    assert [result.tolist() for result in results] == [[0, 2, 4, 6], [2, 2], [-1, -1, -1]]


def test_changes_in_place(device: str) -> None:
    """Compiled code changes its input, and a view of it, as it would without."""

    def run(x: Tensor) -> Tensor:
        x.add_(1)
        x[1:].mul_(3)
        return x.t() if x.dim() > 1 else x[::2]

    x, y = torch.zeros(5, device=device), torch.zeros(5, device=device)
    view, expected = compiled(run)(x), run(y)
    assert x.tolist() == y.tolist() == [1, 3, 3, 3, 3]
    assert view.tolist() == expected.tolist()
    x.fill_(7)
    assert view.tolist() == [7, 7, 7], "what compiled code returned is no view of its input any more"


def test_copies_between_host_and_device(device: str) -> None:
    """Compiled code takes tensors of the CPU and the device, and copies between them."""

    def run(x: Tensor, y: Tensor) -> Tensor:
        return (x.cpu() + y).to(device) * 2

    result = compiled(run)(torch.ones(3, device=device), torch.arange(3.0))
    assert result.device.type == device
    assert result.tolist() == [2, 4, 6]


@needs.feature("generator")
@pytest.mark.parametrize("call", ["function", "module"])
def test_dropout(device: str, backend: ModuleType, call: str) -> None:
    """Compiled dropout drops about as many as it should, the same for the same seed, and the same backward."""
    module = torch.nn.Dropout(0.25)
    run = compiled(module if call == "module" else lambda x: F.dropout(x, 0.25))

    def draw(seed: int) -> Tensor:
        backend.manual_seed(seed)
        x = torch.ones(10_000, device=device, requires_grad=True)
        y = run(x)
        y.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, y.detach()), "the backward pass kept other elements than the forward pass"
        return y.detach().cpu()

    with torch.random.fork_rng([0], device_type=device):
        one, same, other = draw(1), draw(1), draw(2)
    assert torch.equal(one, same), "the same seed dropped other elements"
    assert not torch.equal(one, other), "another seed dropped the same elements"
    assert one.unique().tolist() == pytest.approx([0, 4 / 3])
    dropped = int((one == 0).sum())
    assert 2300 < dropped < 2700, f"{dropped} of 10000 elements were dropped with probability 0.25"


@needs.feature("generator")
def test_random_numbers_go_on(device: str, backend: ModuleType) -> None:
    """Random numbers drawn in compiled code are the next ones of the device's generator."""

    def draw() -> Tensor:
        return torch.rand(50, device=device) + torch.randn(50, device=device)

    with torch.random.fork_rng([0], device_type=device):
        backend.manual_seed(5)
        expected = [draw().cpu() for _ in range(2)]
        backend.manual_seed(5)
        fast = compiled(draw)
        actual = [fast().cpu(), draw().cpu()]
    torch.testing.assert_close(actual, expected)


@needs.feature("streams")
def test_streams(device: str, backend: ModuleType) -> None:
    """Compiled code that runs under a side stream enqueues its work there."""
    side = backend.Stream()
    run = compiled(lambda x: x * 2 + 1)
    x = torch.ones(1000, device=device)
    run(x)
    side.wait_stream(backend.current_stream())
    with backend.stream(side):
        x.fill_(5)
        y = run(x)
    side.synchronize()
    assert y.tolist() == [11] * 1000
