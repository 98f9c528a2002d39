import torch

for _ in range(3):
    with torch.xcuda.stream(torch.xcuda.Stream()):
        x = torch.ones(20 << 18, device="xcuda") + 1  # 40 MiB, of 64
        assert x[-1].item() == 2
    del x
