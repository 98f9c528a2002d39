import torch

streams = [torch.xcuda.Stream(device) for device in (0, 1, 0)]
inputs = [torch.randn(1 << 18) for _ in streams]
for _ in range(6):
    results = []
    for stream, x in zip(streams, inputs, strict=True):
        with torch.xcuda.stream(stream):
            results.append((x.pin_memory().to(stream.device, non_blocking=True) * 2).exp())
            torch.xcuda.empty_cache()  # while the stream is busy
    for stream, x, result in zip(streams, inputs, results, strict=True):
        stream.synchronize()
        torch.testing.assert_close(result.cpu(), (x * 2).exp())
    del results, result
torch.xcuda.synchronize(0)
torch.xcuda.empty_cache()
free, total = torch.xcuda.mem_get_info(0)
assert total - free < 8 << 20
