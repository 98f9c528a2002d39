"""Two processes with a device each exchange tensors of their devices."""

from collections.abc import Iterator

import pytest

from torch_backend.testing import needs
from torch_backend.testing.suite.distributed import _work
from torch_backend.testing.suite.distributed._ranks import Ranks, two_ranks

pytestmark = [needs.feature("distributed"), needs.devices(2)]


@pytest.fixture(scope="module")
def ranks(pytestconfig: pytest.Config) -> Iterator[Ranks]:
    """Two processes of one group."""
    with two_ranks(pytestconfig) as both:
        yield both


def test_the_devices_backend_is_picked(ranks: Ranks) -> None:
    """init_process_group() without arguments gives the device's tensors a backend, the same in every rank."""
    names = ranks.run(_work.backend_of_the_device)
    assert len(set(names)) == 1, f"the ranks have the backends {names}"


@pytest.mark.parametrize("operation", ["SUM", "PRODUCT", "MIN", "MAX"])
@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=needs.dtype(d)) for d in ("float32", "int64", "bfloat16", "float16", "uint8")]
)
def test_all_reduce(ranks: Ranks, operation: str, dtype: str) -> None:
    """all_reduce gives every rank the sum, product, least or greatest of what the ranks had."""
    ranks.run(_work.all_reduce, operation, dtype)


def test_broadcast(ranks: Ranks) -> None:
    """broadcast gives every rank the values of the one that is named."""
    ranks.run(_work.broadcast)


def test_all_gather(ranks: Ranks) -> None:
    """all_gather gives every rank the values of all, in the order of ranks."""
    ranks.run(_work.all_gather)


def test_reduce_scatter(ranks: Ranks) -> None:
    """reduce_scatter gives every rank its slice of the sum."""
    ranks.run(_work.reduce_scatter)


def test_send_and_receive(ranks: Ranks) -> None:
    """What one rank sends is what the other receives."""
    ranks.run(_work.send_and_receive)


def test_order_with_streams(ranks: Ranks) -> None:
    """A collective sees the work that was enqueued before it, and the work after its wait() sees its result."""
    ranks.run(_work.order_with_streams)


def test_barrier_and_objects(ranks: Ranks) -> None:
    """barrier() returns in every rank, and Python objects are exchanged."""
    ranks.run(_work.barrier_and_objects)
