"""Batches on their way from a DataLoader to the device."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch_conformance import needs

COUNT, BATCH = 96, 8


@needs.feature("pinned memory")
@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches(device: str, workers: int) -> None:
    """Pinned batches, copied without waiting, arrive whole and in order, also from worker processes."""
    data = torch.arange(COUNT * 500.0).view(COUNT, 500), torch.arange(COUNT)
    arrived: list[tuple[Tensor, Tensor]] = []
    for batch in DataLoader(TensorDataset(*data), batch_size=BATCH, pin_memory=True, num_workers=workers):
        for part in batch:
            assert part.is_pinned(), "a batch of a DataLoader with pin_memory=True is not pinned"
        x, y = (part.to(device, non_blocking=True) for part in batch)
        arrived.append((x * 2, y + 1))
    assert len(arrived) == COUNT // BATCH
    for index, (x, y) in enumerate(arrived):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        assert torch.equal(x.cpu(), data[0][rows] * 2), f"the values of batch {index} are not those of the data"
        assert torch.equal(y.cpu(), data[1][rows] + 1), f"the labels of batch {index} are not those of the data"


def test_a_generator_decides_the_order(device: str) -> None:
    """Shuffled batches come in the order of their generator, whatever the device draws meanwhile."""
    data = TensorDataset(torch.arange(20))

    def order() -> list[int]:
        seen: list[int] = []
        for (x,) in DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(2)):
            torch.rand(3, device=device)
            seen += x.to(device).tolist()
        return seen

    first = order()
    assert order() == first
    assert sorted(first) == list(range(20))
