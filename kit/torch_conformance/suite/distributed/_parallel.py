"""Training over several ranks in every way that PyTorch has. Each function runs in every rank."""

import tempfile
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch_conformance.suite.distributed._work import _here

STEPS = 3


def _mesh() -> DeviceMesh:
    return init_device_mesh(_here().type, (distributed.get_world_size(),))


def _model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(_here())


def _batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 8, generator=generator) for _ in range(STEPS)]


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x.to(_here())).square().mean().backward()
    optimizer.step()


def _train(model: nn.Module, share: bool) -> nn.Module:
    """Plain SGD, on the rank's share of every batch or on the whole."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x in _batches():
        _step(model, optimizer, x[distributed.get_rank() :: distributed.get_world_size()] if share else x)
    return model


def _alone() -> dict[str, Tensor]:
    """The weights after training in one process on whole batches."""
    return dict(_train(_model(), share=False).state_dict())


def _expect_weights(model: nn.Module, expected: dict[str, Tensor], what: str) -> None:
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        torch.testing.assert_close(
            whole, expected[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{what}, {name}: {text}"
        )


def fully_sharded() -> None:
    """fully_shard keeps a part of each weight in each rank, and trains as one process does."""
    from torch.distributed.fsdp import fully_shard

    model = _model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=_mesh())
    fully_shard(model, mesh=_mesh())
    part = next(model.parameters())
    assert part.to_local().device == _here(), f"the rank's part of a weight is on {part.to_local().device}"
    _expect_weights(_train(model, share=True), _alone(), "fully_shard")


def _split() -> nn.Module:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(_model(), _mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def compiled(way: str) -> None:
    """A model that ranks share in a ``way`` of PyTorch's trains compiled as one process does."""
    from torch.distributed.fsdp import fully_shard

    model = _model()
    if way == "DistributedDataParallel":
        model = nn.parallel.DistributedDataParallel(model)
        model.compile()
    elif way == "fully_shard":
        for layer in model:  # type: ignore[attr-defined]
            layer.compile()
            fully_shard(layer, mesh=_mesh())
        fully_shard(model, mesh=_mesh())
    else:
        model = _split()
        model.compile()
    _train(model, share=way != "tensor parallel")
    _expect_weights(getattr(model, "module", model), _alone(), way)


def tensor_parallel() -> None:
    """Layers whose weights are split by columns and by rows compute and train as whole ones do."""
    _expect_weights(_train(_split(), share=False), _alone(), "tensor parallel")


def distributed_tensors() -> None:
    """A DTensor is sharded, replicated, summed and multiplied as a tensor is."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(12, 12, generator=generator) for _ in range(2))
    sharded = distribute_tensor(a.to(_here()), _mesh(), [Shard(0)])
    other = distribute_tensor(b.to(_here()), _mesh(), [Shard(1)])
    torch.testing.assert_close((sharded @ other).full_tensor().cpu(), a @ b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sharded.sum().full_tensor().cpu(), a.sum(), rtol=1e-4, atol=1e-5)
    moved = sharded.redistribute(_mesh(), [Shard(1)]).redistribute(_mesh(), [Replicate()])
    assert torch.equal(moved.to_local().cpu(), a), "redistribute() has changed values"
    dropped = torch.distributed.tensor.rand(8, 8, device_mesh=_mesh(), placements=[Replicate()]).to_local()
    gathered = [torch.empty_like(dropped) for _ in range(distributed.get_world_size())]
    distributed.all_gather(gathered, dropped)
    assert all(torch.equal(part, dropped) for part in gathered), "a replicated random DTensor differs between ranks"


def compressed_gradients() -> None:
    """A communication hook of DistributedDataParallel sends gradients as float16."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = _model()
    parallel = nn.parallel.DistributedDataParallel(model)
    parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    _train(parallel, share=True)
    for name, value in _alone().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-2, atol=1e-3)


def many_buckets() -> None:
    """Gradients that go in several buckets are those that go in one."""
    model = _model()
    _train(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4, gradient_as_bucket_view=True), share=True)
    _expect_weights(model, _alone(), "DistributedDataParallel with small buckets")


def sharded_optimizer() -> None:
    """ZeroRedundancyOptimizer keeps a part of the optimizer's state in each rank, and takes the same steps."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _model()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(parallel.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9)
    for x in _batches():
        _step(parallel, optimizer, x[distributed.get_rank() :: distributed.get_world_size()])
    _expect_weights(model, _alone(), "ZeroRedundancyOptimizer")


def pipeline() -> None:
    """A model whose stages lie in different ranks gives the gradients of the whole."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, count = distributed.get_rank(), distributed.get_world_size()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        layers = [nn.Linear(8, 8).to(_here()) for _ in range(count)]
    whole = nn.Sequential(*(nn.Linear(8, 8) for _ in range(count)))
    for mine, theirs in zip(whole, layers, strict=True):
        mine.load_state_dict(theirs.state_dict())
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(4))
    stage = PipelineStage(layers[rank], rank, count, _here())
    schedule = Schedule1F1B(stage, n_microbatches=2 * count, loss_fn=lambda y, _target: y.square().mean())
    if rank == 0:
        schedule.step(x.to(_here()))
    elif rank == count - 1:
        schedule.step(target=x.to(_here()))
    else:
        schedule.step()
    whole(x).square().mean().backward()
    torch.testing.assert_close(layers[rank].weight.grad.cpu(), whole[rank].weight.grad, rtol=1e-4, atol=1e-5)


def saved_in_parts() -> None:
    """torch.distributed.checkpoint saves a part per rank, and loads into a model that is split in another way."""
    from torch.distributed import checkpoint
    from torch.distributed.fsdp import fully_shard

    folder: list[Any] = [tempfile.mkdtemp() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(folder, 0)
    saved = fully_shard(_model(), mesh=_mesh())
    expected = {name: value.full_tensor() for name, value in saved.state_dict().items()}
    checkpoint.save({"model": saved.state_dict()}, checkpoint_id=folder[0])
    loaded = _model()
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.zero_()
    state = {"model": loaded.state_dict()}
    checkpoint.load(state, checkpoint_id=folder[0])
    loaded.load_state_dict(state["model"])
    _expect_weights(loaded, expected, "torch.distributed.checkpoint")


def batch_norm() -> None:
    """SyncBatchNorm normalizes over the batches of all ranks, and so do its gradients."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4)).to(_here())
    whole = torch.randn(8, 4, generator=torch.Generator().manual_seed(5)).requires_grad_()
    part = whole.detach()[rank::count].to(_here()).requires_grad_()
    weights = torch.randn(8, 4, generator=torch.Generator().manual_seed(6))
    y = model(part)
    expected = nn.BatchNorm1d(4)(whole)
    torch.testing.assert_close(y.cpu(), expected[rank::count], rtol=1e-4, atol=1e-5)
    (y * weights[rank::count].to(_here())).sum().backward()
    (expected * weights).sum().backward()
    assert part.grad is not None
    assert whole.grad is not None
    torch.testing.assert_close(part.grad.cpu(), whole.grad[rank::count], rtol=1e-4, atol=1e-5)
