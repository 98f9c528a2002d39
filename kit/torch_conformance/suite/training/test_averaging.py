"""Averages of a model's weights over training."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn, update_bn
from torch_conformance.suite.training._models import cnn, images
from torch_conformance.suite.training._training import (
    Trained,
    assert_same_training,
    batches,
    model_of,
    moved,
    sgd,
    state_of,
    step,
)

AVERAGES = {"ema": lambda: get_ema_multi_avg_fn(0.8), "swa": get_swa_multi_avg_fn}


# PyTorch cannot average integer buffers equally.
@pytest.mark.parametrize(
    ("kind", "use_buffers"), [("ema", False), ("ema", True), ("swa", False)], ids=["ema", "ema-with-buffers", "swa"]
)
def test_averaged_weights(device: str, kind: str, use_buffers: bool) -> None:
    """An exponential and an equal average of the weights of every step are those of the CPU."""

    def run(where: str) -> Trained:
        model = model_of(cnn).to(where)
        averaged = AveragedModel(model, multi_avg_fn=AVERAGES[kind](), use_buffers=use_buffers)
        optimizer = sgd(model.parameters())
        losses = []
        for batch in batches(images, 4):
            losses.append(step(model, optimizer, moved(batch, where)))
            averaged.update_parameters(model)
        return Trained(losses, state_of(averaged))

    expected, actual = run("cpu"), run(device)
    assert expected.state["n_averaged"].item() == 4
    assert_same_training(actual, expected)


def test_statistics_of_an_averaged_model(device: str) -> None:
    """update_bn gives an averaged model the statistics of the data, taken on the device."""

    def run(where: str) -> Trained:
        averaged = AveragedModel(nn.Sequential(model_of(cnn))).to(where)
        update_bn([x for x, _ in batches(images, 3)], averaged, device=torch.device(where))
        return Trained([], state_of(averaged))

    assert_same_training(run(device), run("cpu"))
