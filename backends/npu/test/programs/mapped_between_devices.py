"""Copies of mapped memory of any alignment, and with memory that is not mapped."""

import torch

x = torch.arange(100_000, dtype=torch.uint8)
ordinary = x.to("npu:1")
assert not torch.npu.memory._snapshot()["segments"][0]["is_expandable"]
torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
mapped = torch.empty(3 << 20, dtype=torch.uint8, device="npu")[-len(x) :].copy_(x)
assert mapped.to("npu:1").cpu().equal(x)
for start in (0, 1, 64):
    ordinary.zero_()[3:1000].copy_(mapped[start : start + 997])
    assert ordinary.cpu()[3:1000].equal(x[start : start + 997])
    assert ordinary.cpu()[1000:].eq(0).all()
    mapped[5:1002].copy_(ordinary[3:1000])
    assert mapped.cpu()[5:1002].equal(x[start : start + 997])
    mapped.copy_(x)
for turn in range(1, 6):  # work that is pending comes first
    for _ in range(10):
        mapped.add_(1)
    ordinary[1:1000].copy_(mapped[:999])
    assert ordinary.cpu()[1:1000].equal(x[:999] + 10 * turn)
assert torch.npu.current_device() == 0
