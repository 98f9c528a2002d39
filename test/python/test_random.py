"""The state of a device's generator as torch.<name> shows it."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch


@pytest.fixture(autouse=True)
def keep_states(backend: ModuleType) -> Iterator[None]:
    states = backend.get_rng_state_all()
    yield
    backend.set_rng_state_all(states)


def test_state_layout(backend: ModuleType, name: str) -> None:
    backend.manual_seed(99)
    torch.rand(10, device=name)
    state = backend.get_rng_state()
    assert (state.dtype, state.device.type, state.numel()) == (torch.uint8, "cpu", 16)
    seed, offset = state.view(torch.int64).tolist()
    assert (seed, offset) == (99, backend._get_rng_state_offset())


def test_offset(backend: ModuleType) -> None:
    backend.manual_seed(1)
    assert backend._get_rng_state_offset() == 0
    backend._set_rng_state_offset(8)
    assert backend._get_rng_state_offset() == 8


def test_default_generators_are_a_sequence(backend: ModuleType, name: str) -> None:
    generators = backend.default_generators
    assert generators[-1].device == torch.device(name, len(generators) - 1)
    assert [g.device.index for g in generators[:]] == list(range(len(generators)))
    assert backend._get_generator(torch.device(name, 0)).initial_seed() == generators[0].initial_seed()
