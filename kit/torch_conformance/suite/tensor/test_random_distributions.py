"""Random numbers follow the distribution that was asked for."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_conformance.promises import promise
from torch_conformance.suite.tensor._random import keep_states as keep_states
from torch_conformance.suite.tensor._support import dtypes, each

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
    "poisson of many": (lambda x: torch.poisson(torch.full_like(x, 60)), 60.0, 60.0),
    "binomial": (lambda x: torch.binomial(torch.full_like(x, 10), torch.full_like(x, 0.3)), 3.0, 2.1),
    "binomial of many": (lambda x: torch.binomial(torch.full_like(x, 200), torch.full_like(x, 0.3)), 60.0, 42.0),
    "binomial, likely": (lambda x: torch.binomial(torch.full_like(x, 200), torch.full_like(x, 0.8)), 160.0, 32.0),
    "gamma": (lambda x: torch._standard_gamma(torch.full_like(x, 3)), 3.0, 3.0),
    "gamma below 1": (lambda x: torch._standard_gamma(torch.full_like(x, 0.5)), 0.5, 0.5),
    "randint": (lambda x: torch.randint_like(x, 0, 10), 4.5, 8.25),
    "random_": (lambda x: x.random_(5, 15), 9.5, 8.25),
    "dropout": (lambda x: torch.nn.functional.dropout(torch.ones_like(x), 0.75), 1.0, 3.0),
    "native_dropout": (lambda x: torch.native_dropout(torch.ones_like(x), 0.2, True)[0], 1.0, 0.25),
}


@each("moments", MOMENTS)
def test_mean_and_variance(device: str, moments: tuple[Callable[[Tensor], Tensor], float, float]) -> None:
    """Many numbers have the mean and the variance of their distribution."""
    draw, mean, variance = moments
    torch.manual_seed(1)
    values = draw(torch.zeros(MANY, device=device)).cpu().double()
    # Six standard errors of the mean; the variance's depends on the fourth moment, so it gets a relative bound.
    assert values.mean().item() == pytest.approx(mean, abs=6 * math.sqrt(variance / MANY)), "the mean is wrong"
    assert values.var().item() == pytest.approx(variance, rel=0.06), "the variance is wrong"


@pytest.mark.parametrize("dtype", dtypes("float16", "bfloat16", "float32", "float64"))
def test_every_floating_dtype(device: str, dtype: torch.dtype) -> None:
    """Uniform and normal numbers of every floating dtype have their mean and variance, and are within bounds."""
    torch.manual_seed(1)
    uniform = torch.rand(MANY, dtype=dtype, device=device).cpu().double()
    assert 0 <= uniform.min().item() <= uniform.max().item() < 1, f"torch.rand of {dtype} leaves [0, 1)"
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.01), (
        f"torch.rand of {dtype} has mean {uniform.mean().item()}"
    )
    normal = torch.randn(MANY, dtype=dtype, device=device).cpu().double()
    assert normal.mean().item() == pytest.approx(0, abs=0.02), f"torch.randn of {dtype} has mean {normal.mean().item()}"
    assert normal.var().item() == pytest.approx(1, rel=0.05), (
        f"torch.randn of {dtype} has variance {normal.var().item()}"
    )


DISTRIBUTIONS: dict[str, tuple[Callable[[Tensor], Tensor], torch.distributions.Distribution]] = {
    "poisson": (lambda x: torch.poisson(torch.full_like(x, 4)), torch.distributions.Poisson(4.0)),
    "poisson of many": (lambda x: torch.poisson(torch.full_like(x, 60)), torch.distributions.Poisson(60.0)),
    "binomial": (
        lambda x: torch.binomial(torch.full_like(x, 10), torch.full_like(x, 0.3)),
        torch.distributions.Binomial(10, torch.tensor(0.3)),
    ),
    "binomial of many": (
        lambda x: torch.binomial(torch.full_like(x, 200), torch.full_like(x, 0.3)),
        torch.distributions.Binomial(200, torch.tensor(0.3)),
    ),
    "geometric_": (lambda x: x.geometric_(0.25) - 1, torch.distributions.Geometric(0.25)),
}
"""Draws of whole numbers, and what says how often each comes."""


@each("case", DISTRIBUTIONS)
def test_whole_numbers_come_as_often_as_they_should(
    device: str, case: tuple[Callable[[Tensor], Tensor], torch.distributions.Distribution]
) -> None:
    """Of a distribution of whole numbers each comes with its probability, not only their mean and variance."""
    draw, distribution = case
    torch.manual_seed(1)
    counts = torch.bincount(draw(torch.zeros(MANY, device=device)).cpu().long(), minlength=201)
    at_most = torch.arange(10 if "Binomial(total_count: 10" in repr(distribution) else 200)
    shares = distribution.log_prob(at_most.float()).exp().double()
    standard_errors = (shares * (1 - shares) / MANY).sqrt().clamp(min=1 / MANY)
    off = ((counts[: at_most.numel()] / MANY - shares).abs() / standard_errors).max()
    assert off < 6, f"a number comes {off.item():.0f} standard errors too often or too seldom"


def _deviation_of_gamma(values: Tensor, shape: float) -> float:
    """The Kolmogorov-Smirnov distance."""
    ordered = values.sort().values.double()
    below = torch.special.gammainc(torch.full_like(ordered, shape), ordered)
    steps = torch.arange(1, ordered.numel() + 1) / ordered.numel()
    return float((below - steps).abs().max())


@pytest.mark.parametrize("shape", [0.3, 1.0, 3.0, 40.0])
def test_gamma_numbers_follow_their_distribution(device: str, shape: float) -> None:
    """Numbers of the gamma distribution lie below each bound as often as its integral says."""
    torch.manual_seed(1)
    values = torch._standard_gamma(torch.full((MANY,), shape, device=device)).cpu()
    distance = _deviation_of_gamma(values, shape)
    assert distance < 2.5 / math.sqrt(MANY), f"the distance to the distribution is {distance}"  # 1 in 100,000


def test_large_integers_are_uniform(device: str) -> None:
    """Every bit of an integer from a wide range is 1 in half of the draws, and bits do not depend on each other."""
    torch.manual_seed(1)
    values = torch.randint(0, 1 << 60, (MANY // 10,), device=device).cpu()
    bits = (values[:, None] >> torch.arange(60) & 1).double()
    assert (bits.mean(0) - 0.5).abs().max().item() < 3 / math.sqrt(MANY // 10), "a bit is 1 too often or too seldom"
    assert torch.corrcoef(bits.T).fill_diagonal_(0).abs().max().item() < 0.05, "two bits depend on each other"


def test_normal_numbers_are_normal(device: str) -> None:
    """Normal numbers lie within one, two and three deviations as often as they should."""
    torch.manual_seed(1)
    values = torch.randn(MANY, device=device).cpu().abs()
    for deviations, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert (values < deviations).double().mean().item() == pytest.approx(share, abs=0.006), (
            f"too many or too few numbers are within {deviations} deviations"
        )


def test_cauchy_has_its_median_and_quartiles(device: str) -> None:
    """Cauchy numbers, which have no mean, have their median and quartiles."""
    torch.manual_seed(1)
    values = torch.zeros(MANY, device=device).cauchy_(2, 3).cpu()
    lower, median, upper = values.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    assert (lower, median, upper) == pytest.approx((-1, 2, 5), abs=0.1), f"the quartiles are {lower}, {median}, {upper}"


def test_ranges(device: str) -> None:
    """Numbers stay within their range, and integers reach all of it."""
    torch.manual_seed(1)
    uniform = torch.rand(MANY, device=device)
    assert uniform.min().item() >= 0, f"torch.rand gives {uniform.min().item()}"
    assert uniform.max().item() < 1, f"torch.rand gives {uniform.max().item()}, which is not below 1"
    integers = torch.randint(-3, 4, (MANY,), device=device)
    assert integers.unique().tolist() == list(range(-3, 4)), (
        f"randint between -3 and 4 gives {integers.unique().tolist()}"
    )
    assert torch.randint(0, 2, (MANY,), device=device).unique().tolist() == [0, 1]
    assert bool((torch.empty(MANY, device=device).exponential_() > 0).all()), "exponential_ gives zero"


def test_permutations(device: str) -> None:
    """A random permutation, and a draw without replacement, have every number once."""
    for size in (0, 1, 2, 300, 1000, 50_000):
        permutation = torch.randperm(size, device=device)
        assert permutation.device.type == device, f"a permutation is on {permutation.device}"
        assert torch.equal(permutation.sort()[0].cpu(), torch.arange(size)), f"randperm({size}) is no permutation"
        if size >= 300:
            both = torch.stack([permutation.cpu().double(), torch.arange(size).double()])
            assert torch.corrcoef(both)[0, 1].abs().item() < 6 / math.sqrt(size), f"randperm({size}) has an order"
    without = torch.multinomial(torch.ones(100, device=device), 100)
    assert torch.equal(without.sort()[0].cpu(), torch.arange(100)), "multinomial without replacement replaces"


def test_multinomial_follows_its_weights(device: str) -> None:
    """multinomial draws each index as often as its weight says."""
    torch.manual_seed(1)
    weights = torch.tensor([0.0, 1.0, 3.0, 6.0], device=device)
    counts = torch.bincount(torch.multinomial(weights, MANY, replacement=True).cpu(), minlength=4) / MANY
    torch.testing.assert_close(counts, torch.tensor([0.0, 0.1, 0.3, 0.6]), atol=0.01, rtol=0)


@promise("tb_philox 2")
def test_neighbours_are_not_correlated(device: str) -> None:
    """Numbers drawn together, and numbers drawn one after the other, are not correlated."""
    torch.manual_seed(1)
    values = torch.randn(100, 2000, device=device).cpu()
    assert torch.corrcoef(values).fill_diagonal_(0).abs().max().item() < 0.15, "rows of one draw are correlated"
    small = torch.stack([torch.rand((), device=device) for _ in range(2000)]).cpu()
    assert small.unique().numel() > 1990, "draws of one number repeat"
    assert torch.corrcoef(torch.stack([small[1:], small[:-1]]))[0, 1].abs().item() < 0.1, "draws are correlated"
