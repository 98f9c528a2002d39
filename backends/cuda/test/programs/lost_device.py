import pytest
import torch

x = torch.ones(4, 4, device="xcuda")
for work in (lambda: x + 1, lambda: x @ x, lambda: x + 1):
    with pytest.raises(torch.AcceleratorError, match="lost"):
        work(), torch.xcuda.synchronize()
assert (torch.ones(2, device="xcuda:1") + 1).tolist() == [2, 2]
