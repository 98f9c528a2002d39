"""Layers in stages, each rank with its own: with every schedule the gradients are those of one process."""

import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

SIZE, MICROBATCHES = 32, 4
# The stages of the first rank; the second has the others.
FIRST = {
    "ScheduleGPipe": (0,),
    "Schedule1F1B": (0,),
    "ScheduleInterleaved1F1B": (0, 2),
    "ScheduleZBVZeroBubble": (0, 3),
}

rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
loss = torch.nn.functional.mse_loss

for name, first in FIRST.items():
    last = 2 * len(first) - 1
    torch.manual_seed(0)
    x, target = torch.randn(2, 16, SIZE)
    layers = [torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.Tanh()) for _ in range(last + 1)]
    whole = torch.nn.Sequential(*layers)
    loss(whole(x), target).backward()
    expected = {index: [parameter.grad for parameter in layer.parameters()] for index, layer in enumerate(layers)}

    mine = [index for index in range(last + 1) if (index in first) == (rank == 0)]
    stages = [PipelineStage(layers[index].to(device), index, last + 1, device) for index in mine]
    schedule = getattr(schedules, name)(stages if last > 1 else stages[0], MICROBATCHES, loss_fn=loss)
    whole.zero_grad()
    inputs = (x.to(device),) if 0 in mine else ()
    schedule.step(*inputs, **({"target": target.to(device)} if last in mine else {}))
    for index, stage in zip(mine, stages, strict=True):
        for parameter, gradient in zip(stage.submod.parameters(), expected[index], strict=True):
            torch.testing.assert_close(parameter.grad, gradient.to(device))
dist.destroy_process_group()
