"""Models of the usual kinds train and predict as on the CPU."""

import copy

import pytest
import torch
from torch_conformance.suite.training._models import CASES, cnn, images
from torch_conformance.suite.training._training import assert_same_training, batches, model_of, train

STEPS = 6
QUICK = ("mlp", "cnn", "lstm", "gru", "transformer")
KINDS = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.thorough) for kind in CASES]


@pytest.mark.parametrize("kind", KINDS)
def test_training_follows_the_cpu(device: str, kind: str) -> None:
    """Some steps of training give the losses and the weights that they give on the CPU."""
    case = CASES[kind]
    model, data = model_of(case.make), batches(case.sample, STEPS)
    expected = train(model, data, "cpu")
    assert expected.losses[0] != expected.losses[-1]
    assert_same_training(train(model, data, device), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_follows_the_cpu(device: str, kind: str) -> None:
    """A model in evaluation and inference mode predicts what it predicts on the CPU."""
    case = CASES[kind]
    model = model_of(case.make).eval()
    (x, _), *_ = batches(case.sample, 1)
    with torch.inference_mode():
        expected = model(x)
        actual = copy.deepcopy(model).to(device)(x.to(device))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_a_model_learns(device: str) -> None:
    """Forty steps on one batch bring a convolutional network's loss below a third of what it was."""
    (batch,) = batches(images, 1)
    losses = train(model_of(cnn), [batch] * 40, device).losses
    assert losses[-1] < 0.3 * losses[0], f"the loss was {losses[0]} at first and is {losses[-1]} after 40 steps"


def test_channels_last(device: str) -> None:
    """Weights and images in the memory format channels_last train as those in the usual one."""
    model, data = model_of(cnn), batches(images, 3)
    expected = train(model, data, "cpu")
    converted = copy.deepcopy(model).to(memory_format=torch.channels_last)
    data = [(x.to(memory_format=torch.channels_last), y) for x, y in data]
    assert_same_training(train(converted, data, device), expected)
