"""What the ranks of the tests do. Each function runs in every rank, on the rank's current device."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

LENGTH = 5000


def _here() -> torch.device:
    device = torch.accelerator.current_accelerator()
    assert device is not None
    return torch.device(device.type, torch.accelerator.current_device_index())


def _mine(dtype: torch.dtype = torch.float32) -> Tensor:
    """The rank's own values: the rank and one, times 0, 1, 2."""
    values = torch.arange(LENGTH, device=_here()) % 3 * (distributed.get_rank() + 1)
    return values.to(dtype)


def _expect(actual: Tensor, expected: Tensor, what: str) -> None:
    assert actual.device == _here(), f"{what} is on {actual.device}"
    wrong = (actual.cpu() != expected.cpu()).flatten().nonzero().flatten()
    assert len(wrong) == 0, f"{what}: {len(wrong)} of {actual.numel()} elements are wrong, the first at {int(wrong[0])}"


def backend_of_the_device() -> str:
    """Which backend of torch.distributed serves the device's tensors."""
    group = distributed.group.WORLD
    assert group is not None
    return str(group._get_backend(_here()).name())


def all_reduce(operation: str, dtype: str) -> None:
    """Reduce over all ranks."""
    x = _mine(getattr(torch, dtype)) + 1
    ones = [torch.arange(LENGTH) % 3 * (rank + 1) + 1 for rank in range(distributed.get_world_size())]
    together: dict[str, Callable[[Tensor], Tensor]] = {
        "SUM": lambda t: t.sum(0),
        "PRODUCT": lambda t: t.prod(0),
        "MIN": lambda t: t.amin(0),
        "MAX": lambda t: t.amax(0),
    }
    distributed.all_reduce(x, getattr(distributed.ReduceOp, operation))
    _expect(x, together[operation](torch.stack(ones)).to(x.dtype), f"all_reduce with {operation}")


def broadcast() -> None:
    """Every rank gets the values of each in turn."""
    for root in range(distributed.get_world_size()):
        x = _mine()
        distributed.broadcast(x, root)
        _expect(x, (torch.arange(LENGTH) % 3 * (root + 1)).float(), f"broadcast from rank {root}")


def all_gather() -> None:
    """Every rank gets the values of all, as one tensor and as a list."""
    count = distributed.get_world_size()
    expected = torch.stack([torch.arange(LENGTH) % 3 * (rank + 1) for rank in range(count)]).float()
    whole = torch.empty(count * LENGTH, device=_here())
    distributed.all_gather_into_tensor(whole, _mine())
    _expect(whole.view(count, LENGTH), expected, "all_gather_into_tensor")
    parts = [torch.empty(LENGTH, device=_here()) for _ in range(count)]
    distributed.all_gather(parts, _mine())
    _expect(torch.stack(parts), expected, "all_gather")


def reduce_scatter() -> None:
    """Every rank gets its slice of the sum."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    whole = torch.cat([_mine() + part for part in range(count)])
    mine = torch.empty(LENGTH, device=_here())
    distributed.reduce_scatter_tensor(mine, whole)
    total = sum(range(1, count + 1))
    _expect(mine, (torch.arange(LENGTH) % 3 * total + rank * count).float(), "reduce_scatter_tensor")


def send_and_receive() -> None:
    """Values go around from rank to rank."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    before, after = (rank - 1) % count, (rank + 1) % count
    x = torch.empty(LENGTH, device=_here())
    if rank % 2 == 0:
        distributed.send(_mine(), after)
        distributed.recv(x, before)
    else:
        distributed.recv(x, before)
        distributed.send(_mine(), after)
    _expect(x, (torch.arange(LENGTH) % 3 * (before + 1)).float(), f"what rank {before} sent")


def order_with_streams() -> None:
    """A collective comes after the work before it, and the work after its wait() comes after it."""
    module = getattr(torch, _here().type)
    load = torch.zeros(1 << 20, device=_here())
    source = torch.zeros(1 << 20, pin_memory=True)
    for stream in (module.current_stream(), module.Stream()):
        with module.stream(stream):
            for number in range(3):
                for _ in range(20):
                    load.copy_(source, non_blocking=True)
                x = torch.full((LENGTH,), float(number + 1), device=_here())
                work = distributed.all_reduce(x, async_op=True)
                assert work is not None
                work.wait()
                y = x * 2
                x.zero_()
                expected = torch.full((LENGTH,), 2.0 * (number + 1) * distributed.get_world_size())
                _expect(y, expected, f"round {number} of a collective between other work")


def barrier_and_objects() -> None:
    """Ranks wait for each other, and exchange Python objects."""
    distributed.barrier()
    objects: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(objects, {"rank": distributed.get_rank()})
    assert objects == [{"rank": rank} for rank in range(distributed.get_world_size())]


def _model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(_here())


def _data(steps: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 8, generator=generator), torch.randint(4, (8,), generator=generator)) for _ in range(steps)]


def _trained(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(_here())), y.to(_here())).backward()
        optimizer.step()


def data_parallel(steps: int) -> list[list[float]]:
    """Train on the rank's share of every batch; the weights are those of training alone on whole batches."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    model, alone = _model(), _model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(rank)  # DistributedDataParallel gives every rank those of rank 0
    data = _data(steps)
    _trained(DistributedDataParallel(model), [(x[rank::count], y[rank::count]) for x, y in data])
    _trained(alone, data)
    for (name, parameter), right in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(
            parameter, right, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name} after {steps} steps: {text}"
        )
    return [parameter.flatten().tolist() for parameter in model.parameters()]


def accumulated() -> None:
    """Gradients of two batches, the first under no_sync(), are those of both in one process."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    model, alone = _model(), _model()
    parallel, data = DistributedDataParallel(model), _data(2)

    def backward(through: nn.Module, x: Tensor, y: Tensor) -> None:
        nn.functional.cross_entropy(through(x.to(_here())), y.to(_here())).backward()

    (x, y), (x2, y2) = data
    before = copy.deepcopy(model)
    with parallel.no_sync():
        backward(parallel, x[rank::count], y[rank::count])
    backward(before, x[rank::count], y[rank::count])
    for parameter, own in zip(model.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, own.grad, msg=lambda text: f"no_sync() is not the own: {text}")
    backward(parallel, x2[rank::count], y2[rank::count])
    for batch in data:
        backward(alone, *batch)
    for parameter, right in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, right.grad, rtol=1e-4, atol=1e-5)
