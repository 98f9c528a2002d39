"""Every operator that draws random numbers draws them from the device's generator."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.tensor._random import DRAWS, SIZE, first
from torch_conformance.suite.tensor._random import keep_states as keep_states
from torch_conformance.suite.tensor._support import assert_equal, check_refused, each, raises

own = needs.feature("generator")
every_draw = each("draw", DRAWS, float16=["randn half"], complex64=["randn complex"])


@own
@promise("tb_philox 1")
@every_draw
def test_the_devices_generator_decides(device: str, backend: ModuleType, draw: Callable[[Tensor], Any]) -> None:
    """What is drawn depends on the device's generator alone: seed and state repeat it, and each draw advances it."""
    x = torch.zeros(SIZE, device=device)
    host = torch.get_rng_state()
    backend.manual_seed(5)
    before = backend.get_rng_state()
    one = first(draw(x))
    after = backend.get_rng_state()
    two = first(draw(x))
    backend.manual_seed(5)
    torch.default_generator.manual_seed(77)
    again = first(draw(x))
    torch.set_rng_state(host)
    assert torch.equal(one, again), "the same seed gives other numbers"
    assert not torch.equal(before, after), "drawing does not advance the generator's state"
    assert not torch.equal(one, two), "the generator repeats: two draws in a row give the same numbers"
    backend.set_rng_state(after)
    assert torch.equal(first(draw(x)), two), "a state that is put back does not repeat what followed it"
    backend.manual_seed(6)
    assert not torch.equal(first(draw(x)), one), "another seed gives the same numbers"


@own
@every_draw
def test_the_hosts_generator_is_left_alone(device: str, draw: Callable[[Tensor], Any]) -> None:
    """Drawing on the device does not advance the CPU's generator."""
    x = torch.zeros(SIZE, device=device)
    before = torch.get_rng_state()
    draw(x)
    assert torch.equal(torch.get_rng_state(), before), "a draw on the device has advanced the CPU's generator"


@own
def test_what_the_host_draws_leaves_the_device_alone(backend: ModuleType) -> None:
    """Drawing on the CPU does not advance the device's generators."""
    before = backend.get_rng_state_all()
    torch.rand(10)
    torch.randperm(10)
    torch.nn.functional.dropout(torch.ones(10))
    assert all(map(torch.equal, backend.get_rng_state_all(), before)), "a draw on the CPU has advanced the device's"


GENERATOR_DRAWS: dict[str, Callable[[str, torch.Generator], Tensor]] = {
    "rand": lambda d, g: torch.rand(SIZE, device=d, generator=g),
    "randn": lambda d, g: torch.randn(SIZE, device=d, generator=g),
    "randint": lambda d, g: torch.randint(1000, (SIZE,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(SIZE, device=d, generator=g),
    "normal": lambda d, g: torch.normal(0.0, 1.0, (SIZE,), device=d, generator=g),
    "normal of tensors": lambda d, g: torch.normal(torch.zeros(SIZE, device=d), 1.0, generator=g),
    "bernoulli": lambda d, g: torch.bernoulli(torch.full((SIZE,), 0.5, device=d), generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(SIZE, device=d), SIZE, generator=g),
    "poisson": lambda d, g: torch.poisson(torch.full((SIZE,), 3.0, device=d), generator=g),
    "uniform_": lambda d, g: torch.empty(SIZE, device=d).uniform_(generator=g),
    "normal_": lambda d, g: torch.empty(SIZE, device=d).normal_(generator=g),
    "exponential_": lambda d, g: torch.empty(SIZE, device=d).exponential_(generator=g),
    "cauchy_": lambda d, g: torch.empty(SIZE, device=d).cauchy_(generator=g),
    "geometric_": lambda d, g: torch.empty(SIZE, device=d).geometric_(0.3, generator=g),
    "log_normal_": lambda d, g: torch.empty(SIZE, device=d).log_normal_(generator=g),
    "random_": lambda d, g: torch.empty(SIZE, device=d).random_(generator=g),
    "bernoulli_": lambda d, g: torch.empty(SIZE, device=d).bernoulli_(0.5, generator=g),
    "rrelu": lambda d, g: torch.ops.aten.rrelu_with_noise(
        torch.full((SIZE,), -1.0, device=d), torch.empty(SIZE, device=d), training=True, generator=g
    ),
}


@own
@each("draw", GENERATOR_DRAWS)
def test_generator_argument(device: str, backend: ModuleType, draw: Callable[[str, torch.Generator], Tensor]) -> None:
    """A generator that is passed decides what is drawn and advances, and the device's own does not."""
    generator = torch.Generator(device=device).manual_seed(3)
    default = backend.get_rng_state()
    one, two = draw(device, generator).cpu(), draw(device, generator).cpu()
    assert not torch.equal(one, two), "a generator that is passed repeats"
    assert torch.equal(backend.get_rng_state(), default), "the device's generator advanced instead of the one passed"
    generator.manual_seed(3)
    assert_equal(draw(device, generator), one, "numbers drawn with a generator that was seeded again")
    if hasattr(getattr(torch, device), "default_generators"):
        backend.manual_seed(3)
        same = draw(device, backend.default_generators[0])
        assert_equal(same, one, "numbers drawn with the device's own generator, from the same seed")


@own
@each("draw", GENERATOR_DRAWS)
def test_generator_of_the_host(device: str, draw: Callable[[str, torch.Generator], Tensor]) -> None:
    """A generator of the CPU cannot draw on the device."""
    use = {"draw": lambda: draw(device, torch.Generator())}
    check_refused(use, "the generator is the CPU's", f"(?i)expected a '?{device}")


@own
def test_generator_of_the_device_for_the_host(device: str) -> None:
    """A generator of the device cannot draw on the CPU."""
    with raises(RuntimeError, says="Expected a 'cpu' device type for generator"):
        torch.rand(3, generator=torch.Generator(device=device))


@own
@needs.devices(2)
@every_draw
def test_devices_draw_independently(device: str, backend: ModuleType, draw: Callable[[Tensor], Any]) -> None:
    """Drawing on one device leaves the others' generators alone, and gives on all the same numbers for a seed."""
    x = torch.zeros(SIZE, device=f"{device}:1")
    backend.manual_seed_all(5)
    seeded = backend.get_rng_state(0)
    result = draw(x)
    assert (result if isinstance(result, Tensor) else result[0]).device.index == 1, (
        "what was drawn on device 1 is elsewhere"
    )
    assert torch.equal(backend.get_rng_state(0), seeded), "a draw on device 1 has advanced device 0's generator"
    backend.manual_seed_all(5)
    assert torch.equal(first(draw(x.to(f"{device}:0"))), first(result)), (
        "one seed gives other numbers on another device"
    )


def test_drawing_into_views(device: str) -> None:
    """Numbers drawn into a view go to its elements and to no others."""
    base = torch.zeros(6, 8, device=device)
    base[::2, 1::3].uniform_(1, 2)
    touched = (base != 0).cpu()
    assert bool(touched[::2, 1::3].all()), "uniform_ on a view leaves elements of it untouched"
    assert int(touched.sum()) == 9, "uniform_ on a view writes beside it"
    before = base.clone()
    base.t().normal_()
    assert not bool((base == before).any()), "normal_ on a view leaves elements of it untouched"


def test_drawing_nothing(device: str) -> None:
    """Drawing no numbers works."""
    assert torch.rand(0, device=device).shape == (0,), "torch.rand of nothing has another shape"
    assert torch.empty(3, 0, device=device).normal_().shape == (3, 0), "normal_ of nothing has another shape"
    assert torch.randperm(0, device=device).numel() == 0, "randperm(0) has elements"


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x.normal_(0, -1),
    "uniform": lambda x: x.uniform_(2, 1),
    "bernoulli": lambda x: x.bernoulli_(1.5),
    "random": lambda x: x.random_(5, 5),
    "multinomial": lambda x: torch.multinomial(x, 1),
}


@needs.feature("torch_backend")
@each("wrong", WRONG)
def test_wrong_parameters(device: str, wrong: Callable[[Tensor], Tensor]) -> None:
    """Parameters that make no distribution raise, and the device works on."""
    x = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError):
        wrong(x).cpu()  # at the latest
    assert torch.rand(3, device=device).shape == (3,), "the device does not draw after wrong parameters"


def test_drawing_in_threads(device: str, backend: ModuleType) -> None:
    """Threads that draw from one generator at a time get different numbers."""
    backend.manual_seed(9)
    with ThreadPoolExecutor(4) as pool:
        draws = [row.cpu() for row in pool.map(lambda _: torch.rand(500, device=device), range(40))]
    different = torch.stack(draws).unique(dim=0).shape[0]
    assert different == 40, f"40 draws in 4 threads gave {different} different ones"
