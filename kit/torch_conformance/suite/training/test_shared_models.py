"""One model that several processes train at once."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch_conformance import needs
from torch_conformance.suite._other_process import OtherProcess
from torch_conformance.suite.training._shared_model import WEIGHTS, train
from torch_conformance.threads import in_numbered_threads

pytestmark = needs.feature("shared memory")


@pytest.fixture
def workers() -> Iterator[list[OtherProcess]]:
    """Two processes."""
    processes = [OtherProcess() for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()


@pytest.mark.thorough
def test_processes_train_one_model(device: str, workers: list[OtherProcess]) -> None:
    """Two processes that got the same model train it together, without locks, and the sender's model has learned."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1).to(device)
    model.share_memory()
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    losses: dict[int, tuple[float, float]] = {}

    def work(rank: int) -> None:
        losses[rank] = workers[rank].run(train, model, rank)

    in_numbered_threads(len(workers), work)
    for rank, (_, last) in losses.items():
        assert last < 0.5, f"process {rank} ended with a loss of {last}"
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses, "the parameters have moved"
    off = (model.weight.detach().cpu() - torch.tensor(WEIGHTS)).abs().max().item()
    assert off < 0.2, f"the model that was sent is off by {off} after two processes have trained it"
