"""Saved on the device, loaded elsewhere."""

import io

import torch

model = torch.nn.LSTM(8, 16, num_layers=2).cuda()
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(5, 2, 8, device="cuda"))[0].sum().backward()
optimizer.step()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
last = torch.cuda.device_count() - 1
for where in ("cpu", "cuda", f"cuda:{last}", {"cuda:0": f"cuda:{last}"}):
    file.seek(0)
    loaded = torch.load(file, map_location=where, weights_only=True)
    weight = loaded["model"]["weight_ih_l0"]
    assert torch.equal(weight.cpu(), model.weight_ih_l0.detach().cpu())
file.seek(0)
assert torch.load(file)["model"]["weight_ih_l0"].is_cuda
