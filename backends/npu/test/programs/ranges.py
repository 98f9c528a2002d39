import torch

torch.npu.nvtx.range_push("outer")
with torch.npu.nvtx.range("number {}", 3):
    torch.npu.nvtx.mark("moment")
assert torch.npu.nvtx.range_pop() == 0
assert torch.npu.nvtx.range_pop() == -1
