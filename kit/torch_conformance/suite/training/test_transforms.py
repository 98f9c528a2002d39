"""torch.func: functions of tensors on the device are mapped and differentiated as on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F


def _scalar(x: Tensor) -> Tensor:
    return (x.sin() * x.roll(1)).sum()


def _vector(x: Tensor) -> Tensor:
    return torch.stack([x.prod(), *(x * 2).cos()])


def _per_sample(x: Tensor) -> dict[str, Tensor]:
    weight = torch.linspace(-1, 1, 8).reshape(2, 4).to(x.device)
    model = nn.Linear(4, 2, bias=False, device=x.device)

    def loss(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        output: Tensor = functional_call(model, parameters, (sample,))
        return output.square().sum()

    result: dict[str, Tensor] = vmap(grad(loss), (None, 0))({"weight": weight}, torch.stack([x, 2 * x]))
    return result


TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "grad": grad(_scalar),
    "vjp": lambda x: vjp(_vector, x)[1](torch.arange(5.0, device=x.device)),
    "jvp": lambda x: jvp(_vector, (x,), (x.flip(0),)),
    "jacrev": jacrev(_vector),
    "jacfwd": jacfwd(_vector),
    "hessian": hessian(_scalar),
    "vmap": lambda x: vmap(_vector)(torch.stack([x, x + 1, x + 2])),
    "vmap of grad": lambda x: vmap(grad(_scalar))(torch.stack([x, x + 1])),
    "per-sample gradients": _per_sample,
}


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_transforms(device: str, kind: str) -> None:
    """A transformed function gives on the device what it gives on the CPU."""
    x = torch.linspace(0.2, 1.4, 4)
    expected = TRANSFORMS[kind](x)
    actual = TRANSFORMS[kind](x.to(device))
    assert {leaf.device.type for leaf in torch.utils._pytree.tree_leaves(actual)} == {device}
    torch.testing.assert_close(torch.utils._pytree.tree_map(Tensor.cpu, actual), expected)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_of_a_mapped_function(device: str, randomness: str) -> None:
    """vmap draws one set of random numbers for all samples, or another for each, as it is told."""
    x = torch.ones(3, 1000, device=device)
    kept = vmap(lambda sample: F.dropout(sample, 0.5), randomness=randomness)(x).cpu() != 0
    assert all(300 < int(sample.sum()) < 700 for sample in kept)
    assert bool((kept[0] == kept[1]).all()) == (randomness == "same")
