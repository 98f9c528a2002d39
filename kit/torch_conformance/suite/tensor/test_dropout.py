"""Dropout drops what it should and scales the rest, forwards and backwards alike."""

import pytest
import torch

from torch_conformance.suite.tensor._random import SIZE
from torch_conformance.suite.tensor._random import keep_states as keep_states
from torch_conformance.suite.tensor._support import assert_close, assert_equal, assert_values, raises


def test_dropout_scales_what_it_keeps(device: str) -> None:
    """What dropout keeps is scaled, what it drops is zero, and the gradient is dropped where the value is."""
    x = torch.full((SIZE,), 3.0, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    assert set(y.unique().tolist()) == {0.0, 4.0}, (
        f"dropout of threes with probability 0.25 gives {y.unique().tolist()}"
    )
    y.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, y.detach().cpu() / 3, device, "the gradient of dropout")


@pytest.mark.parametrize(("p", "kept"), [(0.0, 1.0), (1.0, 0.0)], ids=["nothing", "everything"])
def test_dropout_of_nothing_and_everything(device: str, p: float, kept: float) -> None:
    """Dropout with probability 0 keeps all, with probability 1 nothing, and outside training it does nothing."""
    x = torch.ones(10, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, p)
    y.sum().backward()
    assert x.grad is not None
    assert_values(y, [kept] * 10, f"dropout with probability {p}")
    assert_values(x.grad, [kept] * 10, f"the gradient of dropout with probability {p}")
    assert_values(torch.nn.functional.dropout(x, 0.5, training=False), [1] * 10, "dropout outside training")
    assert torch.native_dropout(torch.empty(0, device=device), 0.5, True)[1].shape == (0,), (
        "the mask of dropout of nothing has elements"
    )


def test_dropout_modules(device: str) -> None:
    """Dropout modules drop in training and do nothing in evaluation."""
    for module in (torch.nn.Dropout(0.5), torch.nn.Dropout2d(0.5), torch.nn.AlphaDropout(0.5)):
        x = torch.ones(4, 50, 3, 3, device=device)
        assert not torch.equal(module(x), x), f"{module} does nothing in training"
        assert_equal(module.eval()(x), torch.ones(4, 50, 3, 3), f"{module} in evaluation")
    with raises(ValueError, says="between 0 and 1"):
        torch.nn.functional.dropout(torch.ones(2, device=device), 1.5)
