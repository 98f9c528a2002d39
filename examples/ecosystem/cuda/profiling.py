"""Ranges in a profile, and a schedule of steps."""

import torch
from torch.profiler import profile, schedule

model = torch.nn.Linear(32, 32).cuda()
with profile(schedule=schedule(wait=1, warmup=1, active=2), record_shapes=True) as prof:
    for step in range(4):
        torch.cuda.nvtx.range_push(f"step {step}")
        with torch.cuda.nvtx.range("forward"):
            y = model(torch.randn(8, 32, device="cuda"))
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("done")
        y.sum().item()
        prof.step()
names = {event.key for event in prof.key_averages()}
assert {"aten::linear", "forward", "step 2", "step 3", "done"} <= names, names
