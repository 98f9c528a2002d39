"""torch.<name>: random numbers."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch


@pytest.fixture(autouse=True)
def keep_states(backend: ModuleType) -> Iterator[None]:
    states = backend.get_rng_state_all()
    yield
    backend.set_rng_state_all(states)


def test_seed_decides(backend: ModuleType, name: str) -> None:
    draws = []
    for seed in (7, 7, 8):
        backend.manual_seed(seed)
        draws.append(torch.rand(100, device=name).cpu())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert backend.initial_seed() == 8


def test_torch_manual_seed_reaches_every_device(backend: ModuleType) -> None:
    torch.manual_seed(1234)
    assert [generator.initial_seed() for generator in backend.default_generators] == [1234] * backend.device_count()


def test_state_comes_back(backend: ModuleType, name: str) -> None:
    backend.manual_seed(3)
    torch.rand(5, device=name)
    for device in (None, name, f"{name}:0", 0, torch.device(name, 0)):
        state = backend.get_rng_state(device) if device is not None else backend.get_rng_state()
        first = torch.rand(100, device=name).cpu()
        backend.set_rng_state(state) if device is None else backend.set_rng_state(state, device)
        assert torch.equal(torch.rand(100, device=name).cpu(), first)


def test_state_layout(backend: ModuleType, name: str) -> None:
    backend.manual_seed(99)
    torch.rand(10, device=name)
    state = backend.get_rng_state()
    assert (state.dtype, state.device.type, state.numel()) == (torch.uint8, "cpu", 16)
    seed, offset = state.view(torch.int64).tolist()
    assert (seed, offset) == (99, backend._get_rng_state_offset())


def test_bad_state(backend: ModuleType) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        backend.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        backend.set_rng_state(torch.zeros(16))


@pytest.mark.usefixtures("two_devices")
def test_devices_are_independent(backend: ModuleType, name: str) -> None:
    backend.manual_seed_all(5)
    states = backend.get_rng_state_all()
    torch.rand(100, device=f"{name}:1")
    assert torch.equal(backend.get_rng_state(0), states[0])
    assert not torch.equal(backend.get_rng_state(1), states[1])
    backend.set_rng_state_all(states)
    first, second = (torch.rand(100, device=f"{name}:{index}").cpu() for index in (0, 1))
    assert torch.equal(first, second)


def test_fresh_seeds(backend: ModuleType) -> None:
    backend.manual_seed_all(1)
    backend.seed_all()
    seeds = {generator.initial_seed() for generator in backend.default_generators}
    assert len(seeds) == 1
    backend.seed()
    assert backend.initial_seed() not in seeds


def test_default_generators(backend: ModuleType, name: str) -> None:
    generators = backend.default_generators
    assert len(generators) == backend.device_count()
    assert generators[0].device == torch.device(name, 0)
    assert generators[-1].device == torch.device(name, len(generators) - 1)
    assert [g.device.index for g in generators[:]] == list(range(len(generators)))
    assert backend._get_generator(torch.device(name, 0)).initial_seed() == generators[0].initial_seed()
    with pytest.raises(IndexError):
        generators[len(generators)]


def test_offset(backend: ModuleType) -> None:
    backend.manual_seed(1)
    assert backend._get_rng_state_offset() == 0
    backend._set_rng_state_offset(8)
    assert backend._get_rng_state_offset() == 8


def test_fork_rng(backend: ModuleType, name: str) -> None:
    before = backend.get_rng_state()
    with torch.random.fork_rng(device_type=name):
        torch.rand(5, device=name)
        assert not torch.equal(backend.get_rng_state(), before)
    assert torch.equal(backend.get_rng_state(), before)


def test_own_generator(backend: ModuleType, name: str) -> None:
    generator = torch.Generator(device=name).manual_seed(11)
    before = backend.get_rng_state()
    first = torch.rand(50, device=name, generator=generator).cpu()
    assert torch.equal(backend.get_rng_state(), before)
    generator.manual_seed(11)
    assert torch.equal(torch.rand(50, device=name, generator=generator).cpu(), first)


def test_checkpoint_keeps_dropout(name: str) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(64, 64, device=name, requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=False)
    assert isinstance(y, torch.Tensor)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal((x.grad != 0).cpu(), (y != 0).cpu())
