"""Two processes with a device each exchange tensors of their devices."""

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


@needs.feature("streams")
def test_order_with_streams(ranks: Ranks) -> None:
    """A collective sees the work that was enqueued before it, and the work after its wait() sees its result."""
    ranks.run(_work.order_with_streams)


def test_barrier_and_objects(ranks: Ranks) -> None:
    """barrier() returns in every rank, and Python objects are exchanged."""
    ranks.run(_work.barrier_and_objects)


@pytest.mark.parametrize("dtype", [pytest.param(d, marks=needs.dtype(d)) for d in ("float32", "bfloat16", "int64")])
def test_average(ranks: Ranks, dtype: str) -> None:
    """ReduceOp.AVG divides the sum by the number of ranks."""
    ranks.run(_work.average, dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(d, marks=needs.dtype(d))
        for d in ("bool", "int8", "int16", "int32", "uint16", "uint32", "float64", "complex64", "float8_e5m2")
    ],
)
def test_every_dtype_is_moved(ranks: Ranks, dtype: str) -> None:
    """broadcast, all_gather and send keep every value of a dtype."""
    ranks.run(_work.moved, dtype)


def test_reduce(ranks: Ranks) -> None:
    """reduce gives the sum to one rank, and leaves the tensors of the others as they are."""
    ranks.run(_work.reduce_to_one)


def test_gather_and_scatter(ranks: Ranks) -> None:
    """gather brings the values of all ranks to one, scatter the other way."""
    ranks.run(_work.gather_and_scatter)


def test_all_to_all(ranks: Ranks) -> None:
    """all_to_all exchanges a part with every rank."""
    ranks.run(_work.all_to_all)


def test_strided_tensors(ranks: Ranks) -> None:
    """Tensors that are not contiguous are exchanged like others, and what lies between their elements stays."""
    ranks.run(_work.strided_tensors)


def test_batch_of_sends_and_receives(ranks: Ranks) -> None:
    """Sends and receives of one batch go on together: none waits for another."""
    ranks.run(_work.batch)


def test_receive_from_any(ranks: Ranks) -> None:
    """A receive that names no source takes what comes, and says which rank it was."""
    refused = ranks.run(_work.receive_from_any)[0]
    if refused is not None:
        needs.not_offered(f"a receive has to name its source: {refused}")


def test_coalesced(ranks: Ranks) -> None:
    """Collectives between start and end of coalescing are one piece of work."""
    ranks.run(_work.coalesced)


def test_future(ranks: Ranks) -> None:
    """A future of a collective has the tensors as its value, and what is done in its callback comes after it."""
    ranks.run(_work.future)


def test_block_current_stream(ranks: Ranks) -> None:
    """Work.block_current_stream() lets work on the stream come after the collective."""
    ranks.run(_work.stream_waits)


def test_new_group(ranks: Ranks) -> None:
    """A new group has the ranks it was made of, and its own collectives."""
    ranks.run(_work.part_of_the_ranks)


def test_functional_collectives(ranks: Ranks) -> None:
    """The functional collectives, which torch.compile traces, return what the others write."""
    ranks.run(_work.functional)
