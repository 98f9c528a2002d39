"""Every operator that draws random numbers draws them from the device's generator, and draws what it should."""

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def keep_states(backend: ModuleType) -> Iterator[None]:
    states, host = backend.get_rng_state_all(), torch.get_rng_state()
    yield
    backend.set_rng_state_all(states)
    torch.set_rng_state(host)


SIZE = 1000

DRAWS: dict[str, Callable[[Tensor], Any]] = {
    "rand": lambda x: torch.rand(SIZE, device=x.device),
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(SIZE, device=x.device),
    "randn half": lambda x: torch.randn(SIZE, device=x.device, dtype=torch.float16),
    "randn complex": lambda x: torch.randn(SIZE, device=x.device, dtype=torch.complex64),
    "randn_like": lambda x: torch.randn_like(x),
    "randint": lambda x: torch.randint(0, 1000, (SIZE,), device=x.device),
    "randint_like": lambda x: torch.randint_like(x, 1000),
    "randperm": lambda x: torch.randperm(SIZE, device=x.device),
    "normal": lambda x: torch.normal(0.0, 1.0, (SIZE,), device=x.device),
    "normal of tensors": lambda x: torch.normal(x, x + 1),
    "normal of a mean": lambda x: torch.normal(x, 2.0),
    "normal of a deviation": lambda x: torch.normal(1.0, x + 1),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "multinomial": lambda x: torch.multinomial(torch.ones_like(x), SIZE, replacement=True),
    "multinomial without replacement": lambda x: torch.multinomial(torch.ones_like(x), SIZE),
    "poisson": lambda x: torch.poisson(torch.full_like(x, 4.0)),
    "binomial": lambda x: torch.binomial(torch.full_like(x, 10.0), torch.full_like(x, 0.5)),
    "standard_gamma": lambda x: torch._standard_gamma(torch.full_like(x, 2.0)),
    "sample_dirichlet": lambda x: torch._sample_dirichlet(torch.full_like(x, 2.0)),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.5),
    "bernoulli_ of a tensor": lambda x: x.clone().bernoulli_(torch.full_like(x, 0.5)),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "exponential_": lambda x: x.clone().exponential_(),
    "geometric_": lambda x: x.clone().geometric_(0.1),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "normal_": lambda x: x.clone().normal_(),
    "random_": lambda x: x.clone().random_(),
    "random_ to": lambda x: x.clone().random_(1000),
    "random_ between": lambda x: x.clone().random_(5, 1000),
    "uniform_": lambda x: x.clone().uniform_(),
    "dropout": lambda x: torch.nn.functional.dropout(x + 1, 0.5),
    "dropout_": lambda x: torch.nn.functional.dropout(x + 1, 0.5, inplace=True),
    "native_dropout": lambda x: torch.native_dropout(x + 1, 0.5, True),
    "fused_dropout": lambda x: torch._fused_dropout(x + 1, 0.5),
    "dropout2d": lambda x: torch.nn.functional.dropout2d(torch.ones(10, 100, 2, 2, device=x.device)),
    "alpha_dropout": lambda x: torch.nn.functional.alpha_dropout(x + 1, 0.5, training=True),
    "feature_alpha_dropout": lambda x: torch.nn.functional.feature_alpha_dropout(x.view(10, 100), 0.5, True),
    "rrelu": lambda x: torch.nn.functional.rrelu(x - 1, training=True),
    "rrelu_": lambda x: torch.nn.functional.rrelu_(x - 1, training=True),
    "gumbel_softmax": lambda x: torch.nn.functional.gumbel_softmax(x),
    "fractional_max_pool2d": lambda x: torch.nn.functional.fractional_max_pool2d(image(x), 2, (7, 7)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        *[(x + 1).view(1, 10, 100)] * 3, dropout_p=0.5
    ),
    "init": lambda x: torch.nn.init.kaiming_uniform_(torch.empty(10, 100, device=x.device)),
    "init truncated": lambda x: torch.nn.init.trunc_normal_(torch.empty(10, 100, device=x.device)),
    "init orthogonal": lambda x: torch.nn.init.orthogonal_(torch.empty(10, 100, device=x.device)),
    "distribution": lambda x: torch.distributions.Gamma(x + 1, x + 1).sample(),
    "svd_lowrank": lambda x: torch.svd_lowrank(torch.arange(SIZE, device=x.device).float().view(20, 50).sin(), 3)[0],
}


def attention(x: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 10, 100)] * 3, dropout_p=0.5)


def image(x: Tensor) -> Tensor:
    return torch.arange(16 * 16 * 40.0, device=x.device).view(1, 40, 16, 16).sin()


def first(value: Any) -> Tensor:
    return (value if isinstance(value, Tensor) else value[0]).cpu()


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_devices_generator_decides(name: str, backend: ModuleType, draw: Callable[[Tensor], Any]) -> None:
    x = torch.zeros(SIZE, device=name)
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
    assert torch.equal(one, again)
    assert not torch.equal(one, two)
    assert not torch.equal(before, after)
    backend.set_rng_state(after)
    assert torch.equal(first(draw(x)), two)
    backend.manual_seed(6)
    assert not torch.equal(first(draw(x)), one)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_hosts_generator_is_left_alone(name: str, draw: Callable[[Tensor], Any]) -> None:
    x = torch.zeros(SIZE, device=name)
    before = torch.get_rng_state()
    draw(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_the_host_draws_leaves_the_device_alone(backend: ModuleType) -> None:
    before = backend.get_rng_state_all()
    torch.rand(10)
    torch.randperm(10)
    torch.nn.functional.dropout(torch.ones(10))
    assert all(map(torch.equal, backend.get_rng_state_all(), before))


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


@pytest.mark.parametrize("draw", GENERATOR_DRAWS.values(), ids=GENERATOR_DRAWS)
def test_generator_argument(name: str, backend: ModuleType, draw: Callable[[str, torch.Generator], Tensor]) -> None:
    generator = torch.Generator(device=name).manual_seed(3)
    default = backend.get_rng_state()
    one, two = draw(name, generator).cpu(), draw(name, generator).cpu()
    assert not torch.equal(one, two)
    assert torch.equal(backend.get_rng_state(), default)
    generator.manual_seed(3)
    assert torch.equal(draw(name, generator).cpu(), one)
    backend.manual_seed(3)
    same = draw(name, backend.default_generators[0]).cpu()
    assert torch.equal(same, one)


@pytest.mark.parametrize("draw", GENERATOR_DRAWS.values(), ids=GENERATOR_DRAWS)
def test_generator_of_the_host(name: str, draw: Callable[[str, torch.Generator], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=f"(?i)expected a '?{name}"):
        draw(name, torch.Generator())


def test_generator_of_the_device_for_the_host(name: str) -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.rand(3, generator=torch.Generator(device=name))


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_devices_are_independent(name: str, backend: ModuleType, draw: Callable[[Tensor], Any]) -> None:
    x = torch.zeros(SIZE, device=f"{name}:1")
    before = backend.get_rng_state(0)
    backend.manual_seed_all(5)
    seeded = backend.get_rng_state(0)
    result = draw(x)
    assert (result if isinstance(result, Tensor) else result[0]).device.index == 1
    assert torch.equal(backend.get_rng_state(0), seeded)
    backend.set_rng_state(before, 0)
    backend.manual_seed_all(5)
    assert torch.equal(first(draw(x.to(f"{name}:0"))), first(result))


# ---- distributions ----

MANY = 200_000

MOMENTS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "rand": (lambda x: torch.rand_like(x), 0.5, 1 / 12),
    "uniform_": (lambda x: x.uniform_(-2, 4), 1.0, 3.0),
    "randn": (lambda x: torch.randn_like(x), 0.0, 1.0),
    "normal_": (lambda x: x.normal_(3, 2), 3.0, 4.0),
    "normal of tensors": (lambda x: torch.normal(torch.full_like(x, 3), torch.full_like(x, 2)), 3.0, 4.0),
    "exponential_": (lambda x: x.exponential_(0.5), 2.0, 4.0),
    "geometric_": (lambda x: x.geometric_(0.25), 4.0, 12.0),
    "log_normal_": (lambda x: x.log_normal_(0, 0.5), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
    "bernoulli_": (lambda x: x.bernoulli_(0.3), 0.3, 0.21),
    "poisson": (lambda x: torch.poisson(torch.full_like(x, 4)), 4.0, 4.0),
    "binomial": (lambda x: torch.binomial(torch.full_like(x, 10), torch.full_like(x, 0.3)), 3.0, 2.1),
    "gamma": (lambda x: torch._standard_gamma(torch.full_like(x, 3)), 3.0, 3.0),
    "randint": (lambda x: torch.randint_like(x, 0, 10), 4.5, 8.25),
    "random_": (lambda x: x.random_(5, 15), 9.5, 8.25),
    "dropout": (lambda x: torch.nn.functional.dropout(torch.ones_like(x), 0.75), 1.0, 3.0),
    "native_dropout": (lambda x: torch.native_dropout(torch.ones_like(x), 0.2, True)[0], 1.0, 0.25),
}


@pytest.mark.parametrize("key", MOMENTS)
def test_mean_and_variance(name: str, backend: ModuleType, key: str) -> None:
    draw, mean, variance = MOMENTS[key]
    backend.manual_seed(1)
    values = draw(torch.zeros(MANY, device=name)).double().cpu()
    # Six standard errors of the mean; the variance's depends on the fourth moment, so it gets a relative bound.
    assert values.mean().item() == pytest.approx(mean, abs=6 * math.sqrt(variance / MANY))
    assert values.var().item() == pytest.approx(variance, rel=0.06)


def test_cauchy_has_its_median_and_quartiles(name: str) -> None:
    values = torch.zeros(MANY, device=name).cauchy_(2, 3).cpu()
    lower, median, upper = values.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    assert (lower, median, upper) == pytest.approx((-1, 2, 5), abs=0.1)


def test_ranges(name: str) -> None:
    uniform = torch.rand(MANY, device=name)
    assert uniform.min().item() >= 0
    assert uniform.max().item() < 1
    integers = torch.randint(-3, 4, (MANY,), device=name)
    assert integers.unique().tolist() == list(range(-3, 4))
    assert torch.randint(0, 2, (MANY,), device=name, dtype=torch.uint8).unique().tolist() == [0, 1]
    assert (torch.empty(MANY, device=name).exponential_() > 0).all()


def test_permutations(name: str) -> None:
    for size in (0, 1, 2, 1000, 50_000):
        permutation = torch.randperm(size, device=name)
        assert permutation.device.type == name
        assert torch.equal(permutation.sort()[0].cpu(), torch.arange(size))
    without = torch.multinomial(torch.ones(100, device=name), 100)
    assert torch.equal(without.sort()[0].cpu(), torch.arange(100))


def test_multinomial_follows_its_weights(name: str) -> None:
    weights = torch.tensor([0.0, 1.0, 3.0, 6.0], device=name)
    counts = torch.bincount(torch.multinomial(weights, MANY, replacement=True), minlength=4).cpu() / MANY
    torch.testing.assert_close(counts, torch.tensor([0.0, 0.1, 0.3, 0.6]), atol=0.01, rtol=0)


def test_neighbours_are_not_correlated(name: str) -> None:
    values = torch.randn(100, 2000, device=name).cpu()
    assert torch.corrcoef(values).fill_diagonal_(0).abs().max().item() < 0.15
    small = torch.stack([torch.rand((), device=name) for _ in range(2000)]).cpu()
    assert small.unique().numel() > 1990
    assert torch.corrcoef(torch.stack([small[1:], small[:-1]]))[0, 1].abs().item() < 0.1


# ---- dropout ----


def test_dropout_scales_what_it_keeps(name: str) -> None:
    x = torch.full((SIZE,), 3.0, device=name, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    assert set(y.unique().tolist()) == {0.0, 4.0}
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach() / 3)


@pytest.mark.parametrize(("p", "kept"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_of_nothing_and_everything(name: str, p: float, kept: float) -> None:
    x = torch.ones(10, device=name, requires_grad=True)
    y = torch.nn.functional.dropout(x, p)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [kept] * 10
    assert torch.nn.functional.dropout(x, 0.5, training=False) is x or torch.equal(
        torch.nn.functional.dropout(x, 0.5, training=False), x
    )
    assert torch.native_dropout(torch.empty(0, device=name), 0.5, True)[1].shape == (0,)


def test_dropout_module(name: str) -> None:
    for module in (torch.nn.Dropout(0.5), torch.nn.Dropout2d(0.5), torch.nn.AlphaDropout(0.5)):
        x = torch.ones(4, 50, 3, 3, device=name)
        assert not torch.equal(module(x), x)
        assert torch.equal(module.eval()(x), x)
    with pytest.raises(ValueError, match="between 0 and 1"):
        torch.nn.functional.dropout(torch.ones(2, device=name), 1.5)


# ---- views, strides and sizes ----


def test_drawing_into_views(name: str) -> None:
    base = torch.zeros(6, 8, device=name)
    base[::2, 1::3].uniform_(1, 2)
    touched = (base != 0).cpu()
    assert touched[::2, 1::3].all()
    assert touched.sum() == 9
    assert base.t().normal_().data_ptr() == base.data_ptr()


def test_drawing_nothing(name: str) -> None:
    assert torch.rand(0, device=name).shape == (0,)
    assert torch.empty(3, 0, device=name).normal_().shape == (3, 0)
    assert torch.randperm(0, device=name).numel() == 0


@pytest.mark.parametrize("wrong", [lambda x: x.normal_(0, -1), lambda x: x.uniform_(2, 1), lambda x: x.bernoulli_(1.5)])
def test_wrong_parameters(name: str, wrong: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(3, device=name)
    with pytest.raises(RuntimeError):
        wrong(x).cpu()  # at the latest
    assert torch.rand(3, device=name).shape == (3,)


def test_drawing_in_threads(name: str, backend: ModuleType) -> None:
    from concurrent.futures import ThreadPoolExecutor

    backend.manual_seed(9)
    with ThreadPoolExecutor(4) as pool:
        draws = [row.cpu() for row in pool.map(lambda _: torch.rand(500, device=name), range(40))]
    assert torch.stack(draws).unique(dim=0).shape[0] == 40
