"""Seeds and states of the device's generators."""

from collections.abc import Callable
from inspect import signature
from types import ModuleType

import pytest
import torch

from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.tensor._random import keep_states as keep_states
from torch_conformance.suite.tensor._support import assert_equal, each, in_fresh_process

pytestmark = needs.feature("generator")


@promise("tb_philox 1")
def test_seed_decides(device: str, backend: ModuleType) -> None:
    """The same seed gives the same numbers, another seed others."""
    draws = []
    for seed in (7, 7, 8):
        backend.manual_seed(seed)
        draws.append(torch.rand(100, device=device).cpu())
    assert torch.equal(draws[0], draws[1]), "the same seed gives other numbers"
    assert not torch.equal(draws[0], draws[2]), "another seed gives the same numbers"
    assert backend.initial_seed() == 8, f"initial_seed() gives {backend.initial_seed()}, not the seed that was set"


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63, 2**64 - 1, -1])
def test_seeds_of_any_size(device: str, backend: ModuleType, seed: int) -> None:
    """Every seed of 64 bits is accepted, told, and gives numbers of its own."""
    backend.manual_seed(seed)
    assert backend.initial_seed() == seed % 2**64, f"initial_seed() gives {backend.initial_seed()} after seed {seed}"
    mine = torch.rand(50, device=device).cpu()
    backend.manual_seed(seed)
    assert_equal(torch.rand(50, device=device), mine, f"numbers drawn twice with seed {seed}")
    backend.manual_seed(12345)
    assert not torch.equal(torch.rand(50, device=device).cpu(), mine), f"seed {seed} gives the numbers of seed 12345"


def test_torch_manual_seed_reaches_every_device(backend: ModuleType) -> None:
    """torch.manual_seed seeds the generator of every device."""
    torch.manual_seed(1234)
    seeds = [generator.initial_seed() for generator in backend.default_generators]
    assert seeds == [1234] * backend.device_count(), f"after torch.manual_seed(1234) the devices have seeds {seeds}"


def test_state_comes_back(device: str, backend: ModuleType) -> None:
    """A state that is put back repeats what was drawn after it was taken, however the device is named."""
    backend.manual_seed(3)
    torch.rand(5, device=device)
    # torch.mps's functions, of which there is one device, take none.
    named = (device, f"{device}:0", 0, torch.device(device, 0))
    for where in (None, *(named if "device" in signature(backend.get_rng_state).parameters else ())):
        state = backend.get_rng_state(where) if where is not None else backend.get_rng_state()
        first = torch.rand(100, device=device).cpu()
        backend.set_rng_state(state) if where is None else backend.set_rng_state(state, where)
        assert_equal(torch.rand(100, device=device), first, f"numbers after the state of {where!r} was put back")


def test_state_is_a_copy(device: str, backend: ModuleType) -> None:
    """A state that was taken is a tensor of bytes on the CPU, and does not change when numbers are drawn."""
    state = backend.get_rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu"), (
        f"the state is a tensor of {state.dtype} on {state.device}"
    )
    kept = state.clone()
    torch.rand(10, device=device)
    assert torch.equal(state, kept), "a state that was taken changes as numbers are drawn"
    assert not torch.equal(backend.get_rng_state(), kept), "drawing numbers does not change the state"


def test_bad_state(backend: ModuleType) -> None:
    """What is no state of a generator is refused."""
    before = backend.get_rng_state()
    for wrong in (torch.zeros(3, dtype=torch.uint8), torch.zeros(16), torch.zeros(0, dtype=torch.uint8)):
        with pytest.raises((RuntimeError, TypeError)):
            backend.set_rng_state(wrong)
    assert torch.equal(backend.get_rng_state(), before), "a state that was refused has changed the generator"


@needs.devices(2)
def test_devices_are_independent(device: str, backend: ModuleType) -> None:
    """Each device has a generator of its own, and all give the same numbers from the same state."""
    backend.manual_seed_all(5)
    states = backend.get_rng_state_all()
    torch.rand(100, device=f"{device}:1")
    assert torch.equal(backend.get_rng_state(0), states[0]), "a draw on device 1 has advanced device 0's generator"
    assert not torch.equal(backend.get_rng_state(1), states[1]), "a draw on device 1 has not advanced its generator"
    backend.set_rng_state_all(states)
    first, second = (torch.rand(100, device=f"{device}:{index}").cpu() for index in (0, 1))
    assert_equal(second, first, "numbers of two devices with the same seed")


@needs.devices(2)
def test_seed_of_the_current_device(backend: ModuleType) -> None:
    """manual_seed seeds the current device, and no other."""
    backend.manual_seed_all(5)
    with backend.device(1):
        backend.manual_seed(6)
        assert backend.initial_seed() == 6, "manual_seed on device 1 does not seed device 1"
    assert backend.initial_seed() == 5, "manual_seed on device 1 has seeded device 0"


def test_fresh_seeds(backend: ModuleType) -> None:
    """seed and seed_all choose a new seed; seed_all the same for all devices."""
    backend.manual_seed_all(1)
    backend.seed_all()
    seeds = {generator.initial_seed() for generator in backend.default_generators}
    assert len(seeds) == 1, "seed_all gives the devices different seeds"
    assert seeds != {1}, "seed_all keeps the seed there was"
    backend.seed()
    assert backend.initial_seed() not in seeds, "seed() keeps the seed there was"


def test_default_generators(device: str, backend: ModuleType) -> None:
    """There is one default generator per device, and it knows its device."""
    generators = backend.default_generators
    assert len(generators) == backend.device_count(), (
        f"there are {len(generators)} default generators for {backend.device_count()} devices"
    )
    assert [g.device for g in generators] == [torch.device(device, index) for index in range(len(generators))], (
        f"the default generators are on {[g.device for g in generators]}"
    )
    with pytest.raises(IndexError):
        generators[len(generators)]


SIZES = (1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 255, 256, 257, 1000, 1, 1, 4097)


@promise("tb_philox 2")
def test_a_generator_never_repeats(device: str, backend: ModuleType) -> None:
    """No number of 62 bits comes twice, however many are drawn at once."""
    backend.manual_seed(1)
    drawn: list[int] = []
    for _ in range(3):
        for size in SIZES:
            drawn += torch.randint(0, 2**62, (size,), device=device).tolist()
    missing = len(drawn) - len(set(drawn))
    assert missing == 0, f"the generator repeats: {missing} of {len(drawn)} numbers came before"


DRAWS: dict[str, Callable[[str], torch.Tensor]] = {
    "rand": lambda d: torch.rand(100, device=d),
    "randn": lambda d: torch.randn(101, device=d)[:100],
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(500, device=d)),
    "bernoulli": lambda d: torch.bernoulli(torch.full((500,), 0.5, device=d)),
    "randperm": lambda d: torch.randperm(100, device=d),
}


@each("draw", DRAWS)
@each("between", DRAWS)
def test_operators_share_the_state(
    device: str, draw: Callable[[str], torch.Tensor], between: Callable[[str], torch.Tensor]
) -> None:
    """An operator draws other numbers after any other operator has drawn."""
    torch.manual_seed(4)
    one = draw(device).cpu()
    torch.manual_seed(4)
    between(device)
    assert not torch.equal(draw(device).cpu(), one), "an operator draws the numbers that another one has drawn from"


def test_fork_rng(device: str, backend: ModuleType) -> None:
    """torch.random.fork_rng puts back the device's state."""
    before = backend.get_rng_state()
    with torch.random.fork_rng(devices=range(backend.device_count()), device_type=device):
        torch.rand(5, device=device)
        assert not torch.equal(backend.get_rng_state(), before), (
            "drawing within fork_rng does not advance the generator"
        )
    assert torch.equal(backend.get_rng_state(), before), "fork_rng does not put back the device's state"


def test_own_generator(device: str, backend: ModuleType) -> None:
    """A generator of one's own is independent of the device's and of others, and its state can be put back."""
    generator = torch.Generator(device=device).manual_seed(11)
    other = torch.Generator(device=device).manual_seed(11)
    assert generator.device.type == device, f"a generator of the device is on {generator.device}"
    before = backend.get_rng_state()
    first = torch.rand(50, device=device, generator=generator).cpu()
    assert torch.equal(backend.get_rng_state(), before), "a draw from another generator has advanced the device's"
    assert_equal(torch.rand(50, device=device, generator=other), first, "numbers of two generators with one seed")
    state = generator.get_state()
    second = torch.rand(50, device=device, generator=generator).cpu()
    assert not torch.equal(first, second), "a generator of one's own repeats"
    generator.set_state(state)
    assert_equal(torch.rand(50, device=device, generator=generator), second, "numbers after set_state")
    generator.manual_seed(11)
    assert_equal(torch.rand(50, device=device, generator=generator), first, "numbers after manual_seed")
    assert generator.initial_seed() == 11, f"initial_seed() of a generator gives {generator.initial_seed()}, not 11"
    assert generator.seed() == generator.initial_seed() != 11, "seed() of a generator does not choose a new seed"


@pytest.mark.thorough
def test_another_process_draws_the_same(device: str, backend: ModuleType) -> None:
    """A seed gives the same numbers in every process."""
    backend.manual_seed(99)
    here = torch.randint(0, 2**31, (5,), device=device).tolist()
    code = "torch.manual_seed(99); print(torch.randint(0, 2**31, (5,), device=device).tolist())"
    assert in_fresh_process(code).strip() == str(here), "another process draws other numbers from the same seed"
