"""A feed-forward layer in two parts, one a rank."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).cuda()
x = torch.randn(4, 8, device="cuda")
dist.broadcast(x, 0)
expected = model(x)
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
assert model[0].weight.to_local().shape == (32 // mesh.size(), 8)
torch.testing.assert_close(model(x), expected)
model(x).sum().backward()
dist.destroy_process_group()
