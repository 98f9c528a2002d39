"""Two processes: all_reduce, and a step with DistributedDataParallel, against CPU tensors over Gloo."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import torch_backend
from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare

RANKS = 2
CPU = torch.device("cpu")


def run(device: torch.device) -> list[Row]:
    """Milliseconds of one call, as rank 0 sees it."""
    plugin = torch_backend.active()
    if plugin is None:
        raise RuntimeError(f"'{device.type}' is not a device of torch_backend.")
    context = multiprocessing.get_context("spawn")
    rows = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_rank, (plugin.path, str(Path(folder) / "store"), rows), RANKS)  # type: ignore[no-untyped-call]
    result: list[Row] = rows.get()
    return result


def _rank(rank: int, path: str, store: str, rows: "multiprocessing.SimpleQueue[list[Row]]") -> None:
    name = torch_backend.activate(torch_backend.load(path)).name
    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    device = torch.device(name, torch.accelerator.current_device_index())
    distributed.init_process_group(
        f"cpu:gloo,{name}:{torch_backend.distributed.backend_name(name)}",
        init_method=f"file://{store}",
        rank=rank,
        world_size=RANKS,
    )
    measured = [
        _measure("all_reduce 4 KiB", partial(_all_reduce, 4 << 10), device, rounds=301),
        _measure("all_reduce 1 MiB", partial(_all_reduce, 1 << 20), device, rounds=101),
        _measure("all_reduce 64 MiB", partial(_all_reduce, 64 << 20), device, rounds=15),
        _measure("all_gather 16 MiB", partial(_all_gather, 16 << 20), device, rounds=31),
        _measure("DDP step", _ddp_step, device, rounds=61),
    ]
    if rank == 0:
        rows.put(measured)
    distributed.destroy_process_group()


def _measure(name: str, work: Callable[[torch.device], Work], device: torch.device, rounds: int) -> Row:
    # One call per round, so that all ranks make the same calls.
    return time_row(name, compare(work(device), work(CPU), rounds=rounds, round_s=0.0), "ms")


def _all_reduce(size_bytes: int, device: torch.device) -> Work:
    return partial(distributed.all_reduce, torch.zeros(size_bytes // 4, device=device))


def _all_gather(size_bytes: int, device: torch.device) -> Work:
    part = torch.zeros(size_bytes // 4 // RANKS, device=device)
    return partial(distributed.all_gather_into_tensor, torch.empty(size_bytes // 4, device=device), part)


def _ddp_step(device: torch.device) -> Work:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    model.to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 784).to(device), torch.randint(10, (64,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(parallel(inputs), targets).backward()
        optimizer.step()

    return step
