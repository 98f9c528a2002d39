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


@pytest.mark.parametrize(("calls", "numbers"), [(4000, 1), (1, 4000)], ids=["many calls", "one call"])
def test_numbers_are_uniform_and_independent(calls: int, numbers: int, backend: ModuleType, name: str) -> None:
    backend.manual_seed(0)
    drawn = torch.cat([torch.rand(numbers, device=name) for _ in range(calls)]).cpu().double()
    assert abs(drawn.mean().item() - 0.5) < 0.023, "five standard errors"
    neighbours = torch.corrcoef(torch.stack((drawn[:-1], drawn[1:])))[0, 1]
    assert abs(neighbours.item()) < 0.08, "five standard errors"
    counts = torch.histc(drawn, bins=16, min=0, max=1)
    assert ((counts - 250).square() / 250).sum().item() < 45, "chi square of 15 degrees of freedom"
