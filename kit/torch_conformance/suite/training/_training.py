"""Training a model on a device and on the CPU, and comparing the two."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_conformance import needs
from torch_conformance.suite.training._models import CLASSES

TOLERANCE = 1e-4
"""How far a loss may be from the CPU's, in parts of it.

One float32 operator differs by some 1e-6 where it adds in another order, and every step builds on the one before. A
wrong operator, or a step that is lost or done twice, is off by 1e-2 and more.
"""

Batch = tuple[Tensor, Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Gradient descent with momentum."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """An optimizer with more state, some of it numbers of steps."""
    return torch.optim.Adam(parameters, lr=0.01)


def model_of(make: Callable[[], nn.Module]) -> nn.Module:
    """The model on the CPU, with the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return make()


def batches(sample: Callable[[torch.Generator], Tensor], count: int) -> list[Batch]:
    """``count`` batches of inputs and classes on the CPU, the same every time."""
    generator = torch.Generator().manual_seed(1)
    inputs = [sample(generator) for _ in range(count)]
    return [(x, torch.randint(CLASSES, (len(x),), generator=generator)) for x in inputs]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Train one step on a batch that lies where the model does, and return the loss."""
    optimizer.zero_grad()
    x, y = batch
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def moved(batch: Batch, device: str) -> Batch:
    """The batch on ``device``."""
    x, y = batch
    return x.to(device), y.to(device)


@dataclass(frozen=True)
class Trained:
    """The losses of some steps, and what the model's state was then, on the CPU."""

    losses: list[float]
    state: dict[str, Tensor]


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's state on the CPU."""
    return {key: value.to("cpu", copy=True) for key, value in model.state_dict().items()}


def train(model: nn.Module, data: list[Batch], device: str, make_optimizer: MakeOptimizer = sgd) -> Trained:
    """Train a copy of the model, one step per batch."""
    model = copy.deepcopy(model).to(device)
    optimizer = make_optimizer(model.parameters())
    losses = [step(model, optimizer, moved(batch, device)) for batch in data]
    return Trained(losses, state_of(model))


def assert_same_training(actual: Trained, expected: Trained, tolerance: float = TOLERANCE) -> None:
    """Losses are equal within ``tolerance`` and weights within ten times that; raises an error that says where not."""
    for number, (loss, right) in enumerate(zip(actual.losses, expected.losses, strict=True)):
        assert abs(loss - right) <= tolerance * max(1, abs(right)), (
            f"the loss of step {number} is {loss}, and {right} on the CPU"
        )
    for key, right in expected.state.items():
        torch.testing.assert_close(
            actual.state[key],
            right,
            rtol=10 * tolerance,
            atol=tolerance,
            msg=lambda text, key=key: f"after {len(expected.losses)} steps {key} is not what it is on the CPU: {text}",
        )


def assert_identical(actual: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    """Every tensor has the same bits; raises an error that begins with ``what``."""
    for key, right in expected.items():
        wrong = int((actual[key] != right).sum())
        assert wrong == 0, f"{what}: {wrong} of {right.numel()} elements of {key} differ"


def gradients_of(model: nn.Module) -> list[Tensor]:
    """The gradients of the model's parameters."""
    gradients = [parameter.grad for parameter in model.parameters()]
    missing = sum(gradient is None for gradient in gradients)
    assert missing == 0, f"{missing} of {len(gradients)} parameters have no gradient"
    return [gradient for gradient in gradients if gradient is not None]


def fused_or_not_offered(make: Callable[[], torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """What ``make`` gives. Ends the test if PyTorch, which has lists in some optimizers, has none for the device."""
    try:
        return make()
    except RuntimeError as error:
        if "of supported devices" in str(error):
            needs.not_offered(str(error))
        raise
