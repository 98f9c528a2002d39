"""What the ranks of the tests do. Each function runs in every rank, on the rank's current device."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch_conformance import routes
from torch_conformance.suite.async_._support import pinned

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
    module = routes.of_this_process().module()
    load = torch.zeros(1 << 20, device=_here())
    source = pinned(torch.zeros(1 << 20))
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


def average(dtype: str) -> None:
    """ReduceOp.AVG divides the sum by the number of ranks."""
    count = distributed.get_world_size()
    x = _mine(getattr(torch, dtype)) * 2
    distributed.all_reduce(x, distributed.ReduceOp.AVG)
    total = torch.arange(LENGTH) % 3 * sum(range(1, count + 1)) * 2 / count
    _expect(x, total.to(x.dtype), "all_reduce with AVG")
    mine = torch.empty(LENGTH, device=_here(), dtype=x.dtype)
    distributed.reduce_scatter_tensor(mine, (_mine(x.dtype) * 2).repeat(count), distributed.ReduceOp.AVG)
    _expect(mine, total.to(x.dtype), "reduce_scatter_tensor with AVG")


def moved(dtype: str) -> None:
    """broadcast, all_gather and send keep every value of a dtype."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    kind = getattr(torch, dtype)
    values = [
        (torch.arange(24) % 7 * (r + 1) % 2 if kind == torch.bool else torch.arange(24) % 7 + r) for r in range(count)
    ]
    ones = [value.to(kind) for value in values]
    mine = ones[rank].to(_here())
    parts = [torch.zeros(24, device=_here(), dtype=kind) for _ in range(count)]
    distributed.all_gather(parts, mine)
    for other, part in enumerate(parts):
        _expect(part.float(), ones[other].float(), f"what all_gather of {dtype} has of rank {other}")
    x = ones[rank].to(_here())
    distributed.broadcast(x, count - 1)
    _expect(x.float(), ones[count - 1].float(), f"broadcast of {dtype}")
    x = torch.zeros(24, device=_here(), dtype=kind)
    work = [
        distributed.isend(mine, (rank + 1) % count),
        distributed.irecv(x, (rank - 1) % count),
    ]
    for part_of_it in work:
        assert part_of_it is not None
        part_of_it.wait()
    _expect(x.float(), ones[(rank - 1) % count].float(), f"what was received of {dtype}")


def reduce_to_one() -> None:
    """reduce gives the sum to one rank, and leaves the tensors of the others as they are."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    for root in range(count):
        x = _mine()
        distributed.reduce(x, root)
        factor = sum(range(1, count + 1)) if rank == root else rank + 1
        _expect(x, (torch.arange(LENGTH) % 3 * factor).float(), f"reduce to rank {root}")


def gather_and_scatter() -> None:
    """gather brings the values of all ranks to one, scatter the other way."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    for root in range(count):
        parts = [torch.empty(LENGTH, device=_here()) for _ in range(count)] if rank == root else None
        distributed.gather(_mine(), parts, root)
        for other, part in enumerate(parts or []):
            _expect(part, (torch.arange(LENGTH) % 3 * (other + 1)).float(), f"what gather has of rank {other}")
        x = torch.empty(LENGTH, device=_here())
        distributed.scatter(x, [_mine() + other for other in range(count)] if rank == root else None, root)
        _expect(x, (torch.arange(LENGTH) % 3 * (root + 1) + rank).float(), f"scatter from rank {root}")


def all_to_all() -> None:
    """all_to_all exchanges a part with every rank, of one tensor, of parts of several sizes, and of a list."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    x = torch.empty(count * 3, device=_here())
    distributed.all_to_all_single(x, torch.arange(count * 3.0, device=_here()) + 100 * rank)
    expected = torch.cat([torch.arange(3.0) + 3 * rank + 100 * other for other in range(count)])
    _expect(x, expected, "all_to_all_single")
    sent = [other + 1 for other in range(count)]
    x = torch.empty(count * (rank + 1), 2, device=_here())
    distributed.all_to_all_single(x, torch.full((sum(sent), 2), float(rank), device=_here()), [rank + 1] * count, sent)
    expected = torch.arange(float(count)).repeat_interleave(rank + 1)[:, None].expand(-1, 2)
    _expect(x, expected, "all_to_all_single with sizes")
    outputs = [torch.empty(rank + 1, device=_here()) for _ in range(count)]
    inputs = [torch.full((size,), float(rank), device=_here()) for size in sent]
    distributed.all_to_all(outputs, inputs)
    for other, output in enumerate(outputs):
        _expect(output, torch.full((rank + 1,), float(other)), f"what all_to_all has of rank {other}")


def strided_tensors() -> None:
    """Tensors that are not contiguous are exchanged like others, and what lies between their elements stays."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    whole = torch.zeros(6, 8, device=_here())
    part = whole[1:5, ::2]
    part.fill_(rank + 1)
    distributed.all_reduce(part)
    expected = torch.zeros(6, 8)
    expected[1:5, ::2] = sum(range(1, count + 1))
    _expect(whole, expected, "the tensor that a part of was reduced")
    whole.zero_()
    distributed.broadcast(whole.t()[::2, 1:5], 0) if rank else distributed.broadcast(
        expected.to(_here()).t()[::2, 1:5], 0
    )
    if rank:
        _expect(whole, expected, "the tensor that a part of was broadcast to")


def batch() -> None:
    """Sends and receives of one batch go on together: none waits for another."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    size = 1 << 18  # more than a connection buffers
    received = [torch.empty(size, device=_here()) for _ in range(count)]
    operations = []
    for other in range(count):
        if other != rank:
            mine = torch.full((size,), float(rank), device=_here())
            operations.append(distributed.P2POp(distributed.isend, mine, other))
    operations += [
        distributed.P2POp(distributed.irecv, received[other], other) for other in range(count) if other != rank
    ]
    for work in distributed.batch_isend_irecv(operations):
        work.wait()
    for other in set(range(count)) - {rank}:
        _expect(received[other], torch.full((size,), float(other)), f"what rank {other} sent")


def receive_from_any() -> str | None:
    """A receive that names no source says which rank it was; or the text with which it is refused."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    x = torch.empty(3, device=_here())
    refused: list[str | None] = [None]
    work = None
    if rank == 0:
        try:
            work = distributed.irecv(x)
        except NotImplementedError as error:
            refused = [str(error)]
    distributed.broadcast_object_list(refused, 0)
    if refused[0] is not None:
        return refused[0]
    if rank:
        for _ in range(2):
            distributed.send(torch.full((3,), float(rank), device=_here()), 0)
        return None
    assert work is not None
    work.wait()
    senders = [work._source_rank()]
    _expect(x, torch.full((3,), float(senders[0])), f"what rank {senders[0]} sent to any")
    for _ in range(2 * (count - 1) - 1):
        senders.append(distributed.recv(x))
        _expect(x, torch.full((3,), float(senders[-1])), f"what rank {senders[-1]} sent to any")
    assert sorted(senders) == sorted(2 * list(range(1, count))), f"received from {senders}"
    return None


def coalesced() -> None:
    """Collectives between start and end of coalescing are one piece of work."""
    count = distributed.get_world_size()
    tensors = [_mine() + number for number in range(3)]
    with distributed._coalescing_manager(device=_here(), async_ops=True) as manager:
        for tensor in tensors:
            distributed.all_reduce(tensor)
    manager.wait()
    total = sum(range(1, count + 1))
    for number, tensor in enumerate(tensors):
        _expect(tensor, (torch.arange(LENGTH) % 3 * total + number * count).float(), f"tensor {number} of several")


def future() -> None:
    """A future of a collective has the tensors as its value, and what is done in its callback comes after it."""
    x = _mine()
    work = distributed.all_reduce(x, async_op=True)
    assert work is not None
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    doubled.wait()
    total = sum(range(1, distributed.get_world_size() + 1))
    _expect(doubled.value(), (torch.arange(LENGTH) % 3 * total * 2).float(), "what the callback returned")


def stream_waits() -> None:
    """Work.block_current_stream() lets work on the stream come after the collective."""
    for number in range(3):
        x = _mine() + number
        work = distributed.all_reduce(x, async_op=True)
        assert work is not None
        work.block_current_stream()
        y = x * 2
        count = distributed.get_world_size()
        expected = torch.arange(LENGTH) % 3 * sum(range(1, count + 1)) + number * count
        _expect(y, (expected * 2).float(), f"what comes after collective {number}")
        work.wait()


def part_of_the_ranks() -> None:
    """A new group has the ranks it was made of, and its own collectives."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    for members in ([0], list(range(count))):
        group = distributed.new_group(members)
        if rank in members:
            x = _mine()
            distributed.all_reduce(x, group=group)
            _expect(x, (torch.arange(LENGTH) % 3 * sum(r + 1 for r in members)).float(), f"the sum over {members}")
            distributed.destroy_process_group(group)


def functional() -> None:
    """The functional collectives, which torch.compile traces, return what the others write."""
    from torch.distributed import _functional_collectives as functions

    count, world = distributed.get_world_size(), distributed.group.WORLD
    assert world is not None
    expected = torch.stack([torch.arange(LENGTH) % 3 * (rank + 1) for rank in range(count)]).float()
    _expect(functions.all_reduce(_mine(), "sum", world) + 0, expected.sum(0), "all_reduce")
    _expect(functions.all_gather_tensor(_mine(), 0, world) + 0, expected.flatten(), "all_gather_tensor")
    repeated = _mine().repeat(count)
    _expect(functions.reduce_scatter_tensor(repeated, "sum", 0, world) + 0, expected.sum(0), "reduce_scatter_tensor")


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
