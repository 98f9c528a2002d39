"""fully_shard over a mesh, clipped gradients, a checkpoint of all shards."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model(torch.randn(4, 8, device="cuda")).sum().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
torch.optim.AdamW(model.parameters()).step()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
saved = model[0].weight.full_tensor().clone()
dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
with torch.no_grad():
    model[0].weight.zero_()
state = {"model": get_model_state_dict(model)}
dcp.load(state, checkpoint_id=folder[0])
set_model_state_dict(model, state["model"])
assert torch.equal(model[0].weight.full_tensor(), saved)
dist.destroy_process_group()
