"""Operators that draw random numbers, and the states of generators around a test of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_conformance.declaration import Declaration

SIZE = 1000


@pytest.fixture(autouse=True)
def keep_states(device: str, declaration: Declaration) -> Iterator[None]:
    """Put back the states of all generators after a test, those that can be asked for."""
    module, host = getattr(torch, device, None), torch.get_rng_state()
    count = declaration.device_count
    # Devices that cannot be several, such as mps, have no index here either.
    which: list[tuple[int, ...]] = [(index,) for index in range(count)] if count > 1 else [()]
    states = [module.get_rng_state(*index) for index in which] if hasattr(module, "set_rng_state") else []
    yield
    for state, index in zip(states, which, strict=False):
        module.set_rng_state(state, *index)
    torch.set_rng_state(host)


def first(value: Any) -> Tensor:
    """An operator's first result, on the CPU."""
    return (value if isinstance(value, Tensor) else value[0]).cpu()


def _image(x: Tensor) -> Tensor:
    return torch.arange(16 * 16 * 40.0, device=x.device).view(1, 40, 16, 16).sin()


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
    "fractional_max_pool2d": lambda x: torch.nn.functional.fractional_max_pool2d(_image(x), 2, (7, 7)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        *[(x + 1).view(1, 10, 100)] * 3, dropout_p=0.5
    ),
    "init": lambda x: torch.nn.init.kaiming_uniform_(torch.empty(10, 100, device=x.device)),
    "init truncated": lambda x: torch.nn.init.trunc_normal_(torch.empty(10, 100, device=x.device)),
    "init orthogonal": lambda x: torch.nn.init.orthogonal_(torch.empty(10, 100, device=x.device)),
    "distribution": lambda x: torch.distributions.Gamma(x + 1, x + 1).sample(),
    "svd_lowrank": lambda x: torch.svd_lowrank(torch.arange(SIZE, device=x.device).float().view(20, 50).sin(), 3)[0],
}
"""Every operator that draws: from a tensor of zeros, which says how many numbers and where."""
