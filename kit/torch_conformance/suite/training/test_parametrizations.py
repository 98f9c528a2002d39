"""Weights that are computed from other weights."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch_conformance.suite.training._training import gradients_of, model_of

KINDS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "spectral_norm": parametrizations.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "orthogonal-householder": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="householder"),
    "orthogonal-cayley": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"),
    "orthogonal-matrix_exp": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="matrix_exp"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_parametrizations(device: str, kind: str) -> None:
    """A parametrized layer has the weight and the gradients that it has on the CPU."""

    def run(where: str) -> tuple[Tensor, list[Tensor]]:
        layer = model_of(lambda: KINDS[kind](nn.Linear(4, 4))).to(where)
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(where)
        layer(x).square().sum().backward()
        gradients = gradients_of(layer)
        assert {gradient.device.type for gradient in gradients} == {where}
        assert isinstance(layer.weight, Tensor)
        return layer.weight.detach().cpu(), [gradient.cpu() for gradient in gradients]

    expected_weight, expected = run("cpu")
    weight, gradients = run(device)
    torch.testing.assert_close(weight, expected_weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-4)


def test_a_removed_parametrization(device: str) -> None:
    """Removing a parametrization leaves its weight as an ordinary one on the device."""
    layer = model_of(lambda: parametrizations.weight_norm(nn.Linear(4, 4))).to(device)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    assert isinstance(layer.weight, Tensor)
    before = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.device.type == device
    assert torch.equal(layer.weight, before), "the weight changed when its parametrization was removed"
