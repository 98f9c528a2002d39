"""Training does not take more memory the longer it goes on."""

import gc
import time
from types import ModuleType

import pytest
import torch
from torch_conformance import needs, patience, routes
from torch_conformance.suite.training._models import CASES
from torch_conformance.suite.training._training import MakeOptimizer, adam, batches, model_of, moved, sgd, step

pytestmark = needs.feature("memory statistics")

STEPS = 6
PATIENT_SECONDS = 10
KINDS = ("cnn", "lstm", "transformer")  # besides the simplest


@pytest.mark.parametrize("make_optimizer", [sgd, adam], ids=["sgd", "adam"])
@pytest.mark.parametrize("kind", ["mlp", *(pytest.param(k, marks=pytest.mark.thorough) for k in KINDS)])
def test_training_does_not_leak(device: str, backend: ModuleType, kind: str, make_optimizer: MakeOptimizer) -> None:
    """After some steps and after twice as many, as much memory is in use and held, on the device and pinned."""
    case = CASES[kind]
    model = model_of(case.make).to(device)
    optimizer, (batch,) = make_optimizer(model.parameters()), batches(case.sample, 1)
    # Other devices may still know a copy's buffer as in use: CUDA does until it looks at its events again.
    pinned = backend.host_memory_stats if routes.has("torch_backend") else dict

    def held() -> dict[str, int]:
        gc.collect()
        backend.synchronize()
        return {
            "memory_allocated": backend.memory_allocated(),
            "memory_reserved": backend.memory_reserved(),
            "pinned bytes": pinned().get("active_bytes.current", 0),
        }

    def train() -> None:
        for _ in range(STEPS):
            step(model, optimizer, moved(batch, device))

    train()
    before = held()
    train()
    for what, after in held().items():
        assert after <= before[what], f"{STEPS} steps more took {after - before[what]} more of {what}"


def test_a_discarded_model_leaves_nothing(device: str, backend: ModuleType) -> None:
    """When model, optimizer and losses are gone, as much memory is in use as before them."""

    def used() -> int:
        gc.collect()
        backend.synchronize()
        return int(backend.memory_allocated())

    case = CASES["cnn"]
    (batch,) = batches(case.sample, 1)
    before = used()
    model = model_of(case.make).to(device)
    optimizer = adam(model.parameters())
    step(model, optimizer, moved(batch, device))
    assert used() > before
    del model, optimizer
    left = used() - before
    assert left == 0, f"{left} bytes are still in use"


def test_an_exception_in_backward_leaves_nothing(device: str, backend: ModuleType) -> None:
    """A backward pass that an exception ends gives back what it had taken."""

    def fail(_: torch.Tensor) -> None:
        raise KeyError

    def run() -> None:
        x = torch.ones(1000, device=device, requires_grad=True)
        y = x * 2
        y.register_hook(fail)
        with pytest.raises(KeyError):
            (y.exp() * 3).sum().backward()

    # The thread that ran the backward pass drops the rest of it when the caller has the exception already: one pass may
    # still be in use before and after. So there are two in between, and the last one is waited for.
    run()
    gc.collect()
    before = backend.memory_allocated()
    for _ in range(2):
        run()
    gc.collect()
    end = time.monotonic() + patience.seconds(PATIENT_SECONDS)
    while (left := backend.memory_allocated() - before) > 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert left <= 0, f"{left} bytes are still in use"
