"""What one training step takes on each rank of a plan of FSDP2 and tensor parallelism, before there are the machines.

    python plan.py --ranks 8 64 1024 --tensor-parallel 8 --layers 32 --width 4096 --memory 80
    torchrun --nproc-per-node 4 plan.py --tensor-parallel 2

The first plays rank 0 of 8, 64 and 1,024 in one process: the group exchanges nothing, and tensors have no memory, so
that it needs neither the ranks nor the memory. The second runs the same step on the ranks that there are. Both print a
line of a table for each number of ranks: the largest memory, and calls and MiB of each collective.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

COLLECTIVES = {
    "all_gather": ("all_gather", "allgather"),
    "reduce_scatter": ("reduce_scatter",),
    "all_reduce": ("all_reduce", "allreduce"),
}
NO_EXCHANGE = ("wait_tensor", "_wrap_tensor_autograd")
HEAD = (
    f"| ranks | FSDP x TP | memory per rank, MiB | {' | '.join(f'{name}, calls, MiB' for name in COLLECTIVES)} | fits |"
)


class Collectives(TorchDispatchMode):
    """Counts collectives, and their bytes: those of the whole tensor, which the ranks share or have together."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        super().__init__()
        self.calls: dict[str, int] = defaultdict(int)
        self.bytes: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        """Call ``operator``, and count it if the ranks exchange something in it."""
        result = operator(*args, **(kwargs or {}))
        if operator.namespace in ("c10d", "_c10d_functional") and operator._opname not in NO_EXCHANGE:
            name = next(
                (name for name, texts in COLLECTIVES.items() if any(text in operator._opname for text in texts)), None
            )
            if name is None:
                raise NotImplementedError(f"{operator} is not among the collectives that this counts")
            tensors = [value for value in tree_iter((args, result)) if isinstance(value, Tensor)]
            self.calls[name] += 1
            self.bytes[name] += max(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


class Block(nn.Module):
    """Of a transformer: attention and two layers after it."""

    def __init__(self, width: int, head: int) -> None:
        """For tokens of ``width`` numbers, of which each head has ``head``."""
        super().__init__()
        self.head = head
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of ``x``: examples, tokens, width. A rank has a part of the heads."""
        y = self.before(x)
        q, k, v = (
            layer(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def make_model(options: argparse.Namespace) -> nn.Module:
    """A transformer without its embedding, on the default device."""
    return nn.Sequential(*(Block(options.width, options.head) for _ in range(options.layers)))


def share(model: nn.Module, split: int, device: torch.device) -> None:
    """Shard the layers of ``model`` over all ranks, those that share a layer side by side."""
    shape = (dist.get_world_size() // split, split)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))
    columns = dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel())
    for block in model:
        if split > 1:
            parallelize_module(
                block, mesh["tensor"], columns | {"output": RowwiseParallel(), "down": RowwiseParallel()}
            )
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


def train(
    options: argparse.Namespace, model: nn.Module, device: torch.device, before: Callable[[], None] = lambda: None
) -> Collectives:
    """Two steps, the first of which allocates what stays; the collectives of the second."""
    x = torch.randn(options.batch, options.tokens, options.width, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(2):
        before()
        with Collectives() as collectives:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return collectives


def line(options: argparse.Namespace, peak: int, collectives: Collectives) -> str:
    """Of the table."""
    ranks, split = dist.get_world_size(), options.tensor_parallel
    cells = [f"{collectives.calls[name]}, {collectives.bytes[name] / 2**20:.1f}" for name in COLLECTIVES]
    fits = "yes" if peak <= options.memory * 2**30 else "no"
    return f"| {ranks} | {ranks // split} x {split} | {peak / 2**20:.1f} | {' | '.join(cells)} | {fits} |"


def plan(options: argparse.Namespace, ranks: int, device: torch.device) -> str:
    """The table's line for as many ranks, played by this process alone."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    fake, tracker = FakeTensorMode(allow_non_fake_inputs=True), MemTracker()
    with fake, device:
        model = make_model(options)
    share(model, options.tensor_parallel, device)
    tracker.track_external(model)
    with fake, tracker:
        collectives = train(options, model, device, tracker.reset_mod_stats)
    text = line(options, tracker.get_tracker_snapshot("peak")[device]["Total"], collectives)
    dist.destroy_process_group()
    return text


def run(options: argparse.Namespace, device: torch.device) -> str:
    """The table's line for the ranks that there are."""
    dist.init_process_group(device_id=device)
    with device:
        model = make_model(options)
    share(model, options.tensor_parallel, device)
    torch.accelerator.reset_peak_memory_stats()
    collectives = train(options, model, device)
    text = line(options, torch.accelerator.max_memory_allocated(), collectives)
    dist.destroy_process_group()
    return text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="without torchrun: numbers of ranks")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks that share a layer")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--head", type=int, default=64, help="the width of a head")
    parser.add_argument("--batch", type=int, default=2, help="examples of a rank")
    parser.add_argument("--tokens", type=int, default=128, help="of an example")
    parser.add_argument("--memory", type=float, default=80, help="of a rank's device, in GiB")
    options = parser.parse_args()

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        parser.error("no accelerator is active; TORCH_BACKEND=xcpu makes one of the CPU")
    ranked = "RANK" in os.environ
    device = torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", 0)) % torch.accelerator.device_count())
    for ranks in [int(os.environ["WORLD_SIZE"])] if ranked else options.ranks:
        if ranks % options.tensor_parallel:
            parser.error(f"--tensor-parallel {options.tensor_parallel} does not divide {ranks} ranks")
    if ranked:
        torch.accelerator.set_device_index(device.index)
        text = run(options, device)
        lines = [text] if int(os.environ["RANK"]) == 0 else []
    else:
        lines = [plan(options, ranks, device) for ranks in options.ranks]
    if lines:
        print("\n".join((HEAD, "|---" * (HEAD.count("|") - 1) + "|", *lines)))


if __name__ == "__main__":
    main()
