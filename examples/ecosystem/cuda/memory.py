"""What a training step takes, by the allocator's statistics, and where it was allocated."""

import torch

torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
torch.cuda.memory._record_memory_history()
before = torch.cuda.memory_allocated()
model = torch.nn.Linear(1024, 1024, device="cuda")
model(torch.randn(64, 1024, device="cuda")).sum().backward()
assert torch.cuda.memory_allocated() - before >= 2 * 4 * 1024 * 1024
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
assert "1024" not in torch.cuda.memory_summary(abbreviated=True).splitlines()[0]
snapshot = torch.cuda.memory._snapshot()
assert any(
    frame["name"] for segment in snapshot["segments"] for block in segment["blocks"] for frame in block["frames"]
)
torch.cuda.memory._record_memory_history(None)
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total
try:
    torch.empty(1 << 60, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
