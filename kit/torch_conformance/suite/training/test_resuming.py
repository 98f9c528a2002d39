"""Training that is stopped, saved and resumed goes on as if it had not been."""

import copy
import io
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch_conformance import needs
from torch_conformance.suite.training._models import dropout_mlp, mlp, vectors
from torch_conformance.suite.training._training import (
    MakeOptimizer,
    adam,
    assert_identical,
    batches,
    model_of,
    moved,
    sgd,
    state_of,
    step,
    train,
)

SEED = 4


def _written_and_read(state: dict[str, Any], **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    read = torch.load(file, weights_only=True, **options)
    assert isinstance(read, dict)
    return read


@needs.feature("generator")
@pytest.mark.parametrize("make_optimizer", [sgd, adam], ids=["sgd", "adam"])
def test_resuming(device: str, backend: ModuleType, make_optimizer: MakeOptimizer) -> None:
    """Model, optimizer and random state, saved and loaded into new ones, go on with the same bits."""
    data = [moved(batch, device) for batch in batches(vectors, 6)]

    def run(resume: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
        backend.manual_seed(SEED)
        model = model_of(dropout_mlp).to(device)
        optimizer = make_optimizer(model.parameters())
        losses = [step(model, optimizer, batch) for batch in data[:3]]
        if resume:
            saved = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "random": backend.get_rng_state(),
            }
            read = _written_and_read(saved)
            torch.rand(100, device=device)  # moves the generator on
            model = dropout_mlp().to(device)
            optimizer = make_optimizer(model.parameters())
            model.load_state_dict(read["model"])
            optimizer.load_state_dict(read["optimizer"])
            backend.set_rng_state(read["random"])
        losses += [step(model, optimizer, batch) for batch in data[3:]]
        return losses, state_of(model)

    with torch.random.fork_rng([0], device_type=device):
        losses, state = run(resume=False)
        resumed_losses, resumed_state = run(resume=True)
    assert resumed_losses == losses, f"losses are {losses} uninterrupted and {resumed_losses} resumed after step 3"
    assert_identical(resumed_state, state, "the resumed run")


@needs.feature("generator")
def test_the_same_seed_gives_the_same_training(device: str, backend: ModuleType) -> None:
    """Two runs from one seed, with dropout, have the same losses to the last bit; another seed has others."""
    data = [moved(batch, device) for batch in batches(vectors, 4)]

    def run(seed: int) -> list[float]:
        backend.manual_seed(seed)
        model = model_of(dropout_mlp).to(device)
        optimizer = sgd(model.parameters())
        return [step(model, optimizer, batch) for batch in data]

    with torch.random.fork_rng([0], device_type=device):
        assert run(SEED) == run(SEED)
        assert run(SEED) != run(SEED + 1)


def test_loading_onto_the_cpu(device: str) -> None:
    """What was saved on the device loads on the CPU, with the same bits, and trains there."""
    model = model_of(mlp).to(device)
    optimizer = adam(model.parameters())
    step(model, optimizer, moved(batches(vectors, 1)[0], device))
    read = _written_and_read({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, map_location="cpu")
    assert {value.device.type for value in read["model"].values()} == {"cpu"}
    assert_identical(read["model"], state_of(model), "loaded onto the CPU")
    on_cpu = mlp()
    on_cpu.load_state_dict(read["model"])
    optimizer = adam(on_cpu.parameters())
    optimizer.load_state_dict(read["optimizer"])
    assert {state["exp_avg"].device.type for state in optimizer.state.values()} == {"cpu"}
    step(on_cpu, optimizer, batches(vectors, 1)[0])


def test_loading_onto_the_device(device: str) -> None:
    """What was saved on the CPU loads straight onto the device."""
    model = model_of(mlp)
    read = _written_and_read(model.state_dict(), map_location=device)
    assert {value.device.type for value in read.values()} == {device}
    assert_identical({key: value.cpu() for key, value in read.items()}, model.state_dict(), "loaded onto the device")
    with torch.device("meta"):
        shell = mlp()
    shell.load_state_dict(read, assign=True)
    assert {parameter.device.type for parameter in shell.parameters()} == {device}


def test_a_copied_model_is_another_one(device: str) -> None:
    """A deep copy has the same values in memory of its own: training one leaves the other as it is."""
    model = model_of(mlp).to(device)
    before = state_of(model)
    train(copy.deepcopy(model), batches(vectors, 1), device)
    assert_identical(state_of(model), before, "training a copy changed the original")


@needs.devices(2)
def test_loading_onto_another_device(device: str) -> None:
    """What was saved on one device loads onto the other."""
    layer = nn.Linear(3, 3).to(f"{device}:0")
    read = _written_and_read(layer.state_dict(), map_location=f"{device}:1")
    assert {value.device.index for value in read.values()} == {1}
    assert_identical({key: value.cpu() for key, value in read.items()}, state_of(layer), "loaded onto device 1")
