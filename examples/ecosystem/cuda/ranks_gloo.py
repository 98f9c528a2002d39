"""Gloo for both kinds of tensors, and a message from whoever sends."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
for device in ("cpu", "cuda"):
    x = torch.full((3,), rank + 1.0, device=device)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    if rank == 0:
        assert dist.recv(x) == 1
        assert x.tolist() == [7.0] * 3
    else:
        dist.send(torch.full((3,), 7.0, device=device), 0)
dist.destroy_process_group()
