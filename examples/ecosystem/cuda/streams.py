"""Copies on a stream of their own, overlapped with work, timed with events."""

import torch

copies = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
batches = [torch.full((256, 256), float(i)).pin_memory() for i in range(4)]
total = torch.zeros((), device="cuda")
start.record()
for batch in batches:
    with torch.cuda.stream(copies):
        on_device = batch.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    on_device.record_stream(torch.cuda.current_stream())
    total += on_device.sum()
end.record()
torch.cuda.synchronize()
assert total.item() == 256 * 256 * 6
assert start.elapsed_time(end) >= 0
