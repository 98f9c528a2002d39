import torch

import torch_backend

x, w = torch.ones(1, 1, 2, 2, device="xcuda"), torch.ones(1, 1, 1, 1, device="xcuda")
assert "plugin" not in str(torch_backend.explain("mm", x[0, 0], x[0, 0]))
assert "plugin" not in str(torch_backend.explain("conv2d", x, w))
assert (x[0, 0] @ x[0, 0]).tolist() == [[2, 2], [2, 2]]
assert torch.conv2d(x, w).sum().item() == 4
