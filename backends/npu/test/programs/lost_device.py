import pytest
import torch

x = torch.ones(4, device="npu")
for _ in range(2):
    with pytest.raises(torch.AcceleratorError, match="lost"):
        x + 1, torch.npu.synchronize()
