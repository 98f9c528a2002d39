"""DistributedDataParallel: ranks that train on a share of the data each have the weights of one that had it all."""

from collections.abc import Iterator

import pytest
from torch_conformance import needs
from torch_conformance.suite.distributed import _work
from torch_conformance.suite.distributed._ranks import Ranks, two_ranks

pytestmark = [needs.feature("distributed"), needs.devices(2)]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Two processes of one group."""
    with two_ranks() as both:
        yield both


@pytest.mark.parametrize("steps", [1, 4])
def test_steps_equal_those_of_one_process(ranks: Ranks, steps: int) -> None:
    """After some steps every rank has the weights that one process has after training on the whole batches."""
    weights = ranks.run(_work.data_parallel, steps)
    assert weights[0] == weights[1], "the ranks have other weights"


def test_accumulation(ranks: Ranks) -> None:
    """Under no_sync() gradients stay the rank's own; the next pass without it exchanges their sum."""
    ranks.run(_work.accumulated)
