"""Gradient checkpointing: what the forward pass did not keep is computed again, from the same random numbers."""

import copy
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch_conformance import needs
from torch_conformance.suite.training._models import dropout_mlp, mlp, vectors
from torch_conformance.suite.training._training import batches, gradients_of, model_of, moved

Forward = Callable[[nn.Module, Tensor], Tensor]


def _plain(model: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = model(x)
    return result


def _whole(model: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(model, x, use_reentrant=False)
    return result


def _whole_reentrant(model: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(model, x.clone().requires_grad_(), use_reentrant=True)
    return result


def _in_parts(model: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(model, nn.Sequential)
    result: Tensor = checkpoint_sequential(model, 3, x.clone().requires_grad_(), use_reentrant=False)
    return result


def _in_parts_reentrant(model: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(model, nn.Sequential)
    result: Tensor = checkpoint_sequential(model, 3, x.clone().requires_grad_(), use_reentrant=True)
    return result


WAYS = {
    "whole": _whole,
    "whole-reentrant": _whole_reentrant,
    "in-parts": _in_parts,
    "in-parts-reentrant": _in_parts_reentrant,
}


@needs.feature("generator")
@pytest.mark.parametrize("make", [mlp, dropout_mlp], ids=["mlp", "dropout"])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_without_checkpoints(
    device: str, backend: ModuleType, way: str, make: Callable[[], nn.Module]
) -> None:
    """With checkpoints a model gets the gradients that it gets without, also where it draws random numbers."""
    (batch,) = batches(vectors, 1)
    x, y = moved(batch, device)

    def gradients(forward: Forward) -> list[Tensor]:
        model = model_of(make).to(device)
        with torch.random.fork_rng([0], device_type=device):
            backend.manual_seed(3)
            F.cross_entropy(forward(model, x), y).backward()
        return gradients_of(model)

    torch.testing.assert_close(gradients(WAYS[way]), gradients(_plain))


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_dropout_is_repeated(device: str, reentrant: bool) -> None:
    """The second forward pass drops the same elements as the first, and leaves the generator where it was."""
    x = torch.ones(1000, device=device, requires_grad=True)
    y = checkpoint(lambda t: F.dropout(F.dropout(t, 0.5), 0.5), x, use_reentrant=reentrant)
    drawn_before = torch.rand(8, device=device)
    y.sum().backward()
    drawn_after = torch.rand(8, device=device)
    assert x.grad is not None
    wrong = int((x.grad != y.detach()).sum())
    assert wrong == 0, f"{wrong} of 1000 elements were dropped in one pass and not in the other"
    assert not torch.equal(drawn_before, drawn_after), "backward set the generator back for good"


@needs.feature("autocast")
def test_autocast_is_repeated(device: str) -> None:
    """The second forward pass runs under the autocast of the first, also if backward is called outside of it."""
    seen = []

    def block(x: Tensor) -> Tensor:
        seen.append(torch.is_autocast_enabled(device))
        return x * x

    x = torch.ones(3, device=device, requires_grad=True)
    with torch.autocast(device):
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    assert seen == [True, True]


@needs.devices(2)
@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_dropout_on_another_device_is_repeated(device: str, reentrant: bool) -> None:
    """A checkpoint on a device that is not the current one repeats the random numbers of that device."""
    x = torch.ones(1000, device=f"{device}:1", requires_grad=True)
    y = checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach()), "the second forward pass dropped other elements than the first"


@needs.feature("memory statistics")
def test_checkpoints_save_memory(device: str, backend: ModuleType) -> None:
    """Between forward and backward, a checkpointed chain holds less device memory than one that keeps everything."""
    layers = nn.Sequential(*(nn.Sigmoid() for _ in range(8)))
    x = torch.zeros(1 << 18, device=device, requires_grad=True)

    def held(forward: Forward) -> int:
        backend.synchronize()
        before: int = backend.memory_allocated()
        y = forward(copy.deepcopy(layers), x)
        backend.synchronize()
        after: int = backend.memory_allocated()
        y.sum().backward()
        x.grad = None
        return after - before

    kept, checkpointed = held(_plain), held(_whole)
    assert checkpointed <= kept / 4, f"{checkpointed} bytes were held with checkpoints, {kept} without"
