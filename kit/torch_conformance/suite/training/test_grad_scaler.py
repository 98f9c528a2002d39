"""torch.amp.GradScaler: gradients are scaled, checked and unscaled on the device."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.training._models import mlp, vectors
from torch_conformance.suite.training._training import (
    Trained,
    assert_same_training,
    batches,
    fused_or_not_offered,
    model_of,
    moved,
    sgd,
    state_of,
    train,
)


def test_scaled_training_is_the_same(device: str) -> None:
    """Training with a scale that is a power of two gives what training without gives."""
    data = batches(vectors, 4)
    expected = train(model_of(mlp), data, "cpu")
    model = model_of(mlp).to(device)
    optimizer, scaler = sgd(model.parameters()), torch.amp.GradScaler(device, init_scale=1024.0)
    losses = []
    for x, y in (moved(batch, device) for batch in data):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert_same_training(Trained(losses, state_of(model)), expected)


def test_unscaled_gradients_can_be_clipped(device: str) -> None:
    """unscale_ divides gradients by the scale, so that they can be clipped; step does not divide again."""
    weight = torch.zeros(4, device=device, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler(device, init_scale=64.0)
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad is not None
    assert weight.grad.tolist() == [3] * 4
    assert nn.utils.clip_grad_norm_([weight], 3.0).item() == pytest.approx(6)
    scaler.step(optimizer)
    assert weight.tolist() == pytest.approx([-1.5] * 4)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")], ids=["inf", "-inf", "nan"])
@pytest.mark.parametrize("place", [0, 4098])
def test_a_step_with_a_bad_gradient_is_skipped(device: str, bad: float, place: int) -> None:
    """One element that is not finite, in one of many gradients, skips the step and halves the scale."""
    weights = [torch.ones(4099, device=device, requires_grad=True) for _ in range(3)]
    optimizer, scaler = torch.optim.SGD(weights, lr=1.0), torch.amp.GradScaler(device, init_scale=4.0)
    scaler.scale(torch.zeros((), device=device))  # starts the scaler
    for weight in weights:
        weight.grad = torch.ones(4099, device=device)
    assert weights[1].grad is not None
    weights[1].grad[place] = bad
    scaler.step(optimizer)
    scaler.update()
    for index, weight in enumerate(weights):
        assert bool((weight == 1).all()), f"weight {index} was changed, though element {place} of gradient 1 is {bad}"
    assert scaler.get_scale() == 2.0, "the scale was not halved"


def test_the_scale_grows(device: str) -> None:
    """After growth_interval good steps in a row the scale doubles; a bad one starts the count again."""
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, 1.0, float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8, 16, 16, 8, 8, 16]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_optimizers_skip_on_the_device(device: str, kind: str) -> None:
    """A fused optimizer unscales, and skips a bad step, by itself."""
    weights = [torch.ones(5, device=device, requires_grad=True) for _ in range(2)]
    optimizer = fused_or_not_offered(lambda: getattr(torch.optim, kind)(weights, lr=0.5, fused=True))
    scaler = torch.amp.GradScaler(device, init_scale=4.0)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale((weights[0] * factor).sum() + weights[1].sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(float("inf"))
    assert [weight.tolist() for weight in weights] == [[1] * 5] * 2, "a step with an infinite gradient was made"
    step(1.0)
    assert all((weight < 1).all() for weight in weights), "a good step was not made"
    assert scaler.get_scale() == 2.0


def test_a_saved_scaler(device: str) -> None:
    """A scaler's state, saved and loaded, goes on with the same scale and count."""
    scaler = torch.amp.GradScaler(device, init_scale=32.0, growth_interval=2)
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)

    def step(with_scaler: torch.amp.GradScaler) -> float:
        optimizer.zero_grad()
        with_scaler.scale(weight.sum()).backward()
        with_scaler.step(optimizer)
        with_scaler.update()
        return with_scaler.get_scale()

    assert step(scaler) == 32
    resumed = torch.amp.GradScaler(device, init_scale=1.0, growth_interval=2)
    resumed.load_state_dict(scaler.state_dict())
    assert step(resumed) == 64


@needs.devices(2)
def test_gradients_of_two_devices(device: str) -> None:
    """A bad gradient on one device skips the step of the weights on the other one, too."""
    weights = [torch.ones(3, device=f"{device}:{index}", requires_grad=True) for index in (0, 1)]
    optimizer, scaler = torch.optim.SGD(weights, lr=1.0), torch.amp.GradScaler(device, init_scale=4.0)

    def step(factor: float) -> list[list[float]]:
        optimizer.zero_grad()
        sums: list[Tensor] = [weights[0].sum().to(weights[1].device), (weights[1] * factor).sum()]
        scaler.scale(sums[0] + sums[1]).backward()
        scaler.step(optimizer)
        scaler.update()
        return [weight.tolist() for weight in weights]

    assert step(float("inf")) == [[1] * 3] * 2
    assert step(1.0) == [[0] * 3] * 2
