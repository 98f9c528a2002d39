"""Training that outgrows one machine: sharded over all ranks, with checkpoints that any number of ranks can go on from.

    torchrun --nproc-per-node 2 train.py FOLDER --steps 6

The model is sharded with fully_shard, and saved after each step. Every start goes on after the last complete
checkpoint in FOLDER, whatever number of ranks has written it. `--fail-at STEP` kills rank 1 once, after that step.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 8  # of all ranks together, so that their number changes nothing


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The step's examples, which of 16 numbers is the largest; the same in every run."""
    x = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(step))
    return x, x.argmax(1)


def main() -> None:
    """Train, as one rank of many."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fail-at", type=int)
    options = parser.parse_args()

    accelerator = torch.accelerator.current_accelerator() or torch.device("cpu")
    if accelerator.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
    mesh = init_device_mesh(accelerator.type, (int(os.environ["WORLD_SIZE"]),))
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    fully_shard(model.to(accelerator), mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    saved = [folder for folder in options.folder.glob("step-*") if (folder / ".metadata").exists()]
    begin = 0
    if saved:
        last = max(saved, key=lambda folder: int(folder.name.split("-")[1]))
        weights, states = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=last)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
        begin = int(last.name.split("-")[1]) + 1
        if rank == 0:
            print(f"{ranks} ranks go on at step {begin}", flush=True)

    for step in range(begin, options.steps):
        x, y = (part.chunk(ranks)[rank].to(accelerator) for part in batch(step))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights, states = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=options.folder / f"step-{step}")
        failed = options.folder / "failed"
        if step == options.fail_at and rank == 1 and not failed.exists():
            failed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} on {ranks} {accelerator.type}: loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
