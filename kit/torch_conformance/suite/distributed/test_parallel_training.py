"""Ranks that share a model, its data, its optimizer or its checkpoints train as one process does."""

from collections.abc import Iterator

import pytest
from torch_conformance import needs
from torch_conformance.suite.distributed import _parallel
from torch_conformance.suite.distributed._ranks import Ranks, two_ranks

pytestmark = [needs.feature("distributed"), needs.devices(2), pytest.mark.thorough]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Two processes of one group."""
    with two_ranks() as both:
        yield both


def test_fully_shard(ranks: Ranks) -> None:
    """fully_shard (FSDP2) keeps a part of each weight in each rank, and trains as one process does."""
    ranks.run(_parallel.fully_sharded)


def test_tensor_parallel(ranks: Ranks) -> None:
    """Layers whose weights are split by columns and by rows train as whole ones do."""
    ranks.run(_parallel.tensor_parallel)


@needs.feature("compile")
@pytest.mark.parametrize("way", ["DistributedDataParallel", "fully_shard", "tensor parallel"])
def test_compiled(ranks: Ranks, way: str) -> None:
    """Compiled models train over several ranks as they do in one process."""
    ranks.run(_parallel.compiled, way)


def test_distributed_tensors(ranks: Ranks) -> None:
    """A DTensor is sharded, replicated, summed and multiplied as a tensor is."""
    ranks.run(_parallel.distributed_tensors)


def test_communication_hook(ranks: Ranks) -> None:
    """A communication hook of DistributedDataParallel sends gradients as float16."""
    ranks.run(_parallel.compressed_gradients)


def test_many_buckets(ranks: Ranks) -> None:
    """DistributedDataParallel exchanges gradients in several buckets as in one."""
    ranks.run(_parallel.many_buckets)


def test_sharded_optimizer(ranks: Ranks) -> None:
    """ZeroRedundancyOptimizer keeps a part of the state in each rank, and takes the steps of a whole optimizer."""
    ranks.run(_parallel.sharded_optimizer)


def test_pipeline(ranks: Ranks) -> None:
    """A model whose stages lie in different ranks gets the gradients of the whole."""
    ranks.run(_parallel.pipeline)


def test_checkpoint(ranks: Ranks) -> None:
    """torch.distributed.checkpoint saves a part per rank, and loads into a model that is split in another way."""
    ranks.run(_parallel.saved_in_parts)


def test_synchronized_batch_norm(ranks: Ranks) -> None:
    """SyncBatchNorm normalizes over the batches of all ranks."""
    ranks.run(_parallel.batch_norm)
