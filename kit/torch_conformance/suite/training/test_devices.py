"""Training on a device that is not the current one, and on two at once."""

from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.training._models import CASES, cnn, images, vectors
from torch_conformance.suite.training._training import (
    TOLERANCE,
    Trained,
    assert_same_training,
    batches,
    model_of,
    sgd,
    state_of,
    step,
    train,
)

pytestmark = needs.devices(2)

KINDS = ("mlp", "cnn", "lstm", "transformer")


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_another_device(device: str, backend: ModuleType, kind: str) -> None:
    """A model trains on device 1 while device 0 is current, and stays so."""
    case = CASES[kind]
    model, data = model_of(case.make), batches(case.sample, 3)
    actual = train(model, data, f"{device}:1")
    assert backend.current_device() == 0
    assert_same_training(actual, train(model, data, "cpu"))


@needs.feature("memory statistics")
@pytest.mark.parametrize("kind", KINDS)
def test_training_takes_memory_of_its_device_only(device: str, backend: ModuleType, kind: str) -> None:
    """A model that trains on device 1 takes no memory of device 0, which is current."""
    case = CASES[kind]
    before = backend.memory_allocated(0)
    backend.reset_peak_memory_stats(0)
    train(model_of(case.make), batches(case.sample, 1), f"{device}:1")
    taken = backend.max_memory_allocated(0) - before
    assert taken == 0, f"training on device 1 allocated up to {taken} bytes on device 0"


def test_a_model_over_two_devices(device: str) -> None:
    """A model whose halves lie on two devices trains as on the CPU; gradients lie where their weights do."""
    model = model_of(lambda: nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)))
    data = batches(vectors, 3)
    expected = train(model, data, "cpu")
    first, second = (half.to(f"{device}:{index}") for index, half in enumerate(model))
    optimizer = sgd(model.parameters())
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(second(first(x.to(f"{device}:0")).to(f"{device}:1")), y.to(f"{device}:1"))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert_same_training(Trained(losses, state_of(model)), expected)
    for index, half in enumerate((first, second)):
        assert {p.grad.device.index for p in half.parameters() if p.grad is not None} == {index}


def test_two_models_at_once(device: str) -> None:
    """Two models train in turns, each on a device of its own, and neither disturbs the other."""
    models = [model_of(cnn).to(f"{device}:{index}") for index in (0, 1)]
    optimizers = [sgd(model.parameters()) for model in models]
    data = batches(images, 3)
    expected = train(model_of(cnn), data, "cpu").losses
    for number, (x, y) in enumerate(data):
        for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            place = f"{device}:{index}"
            loss = step(model, optimizer, (x.to(place), y.to(place)))
            assert loss == pytest.approx(expected[number], rel=TOLERANCE), f"step {number} on device {index}"


def test_gradients_that_meet(device: str) -> None:
    """A weight that is used on both devices gets the sum of both gradients."""
    weight = torch.ones(100, device=f"{device}:0", requires_grad=True)
    there = (weight.to(f"{device}:1") * 3).sum()
    here = (weight * 2).sum()
    (here + there.to(f"{device}:0")).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [5] * 100
