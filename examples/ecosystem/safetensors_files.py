"""Safetensors files hold tensors without code: save a model from the device, and load it straight onto the device."""

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

device = torch.accelerator.current_accelerator() or torch.device("cpu")
last = f"{device.type}:{torch.accelerator.device_count() - 1}" if device.type != "cpu" else "cpu"

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "model.safetensors")
    save_file(model.state_dict(), file)
    state = load_file(file, device=last)
    assert {tensor.device for tensor in state.values()} == {torch.device(last)}
    for name, tensor in model.state_dict().items():
        assert torch.equal(state[name].to(device), tensor)

    with safe_open(file, framework="pt", device=device.type) as lazily:
        assert torch.equal(lazily.get_slice("0.weight")[2:4], model[0].weight[2:4])

    save_model(model, str(file))
    twin = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    load_model(twin, file, device=device.type)
    x = torch.ones(1, 4, device=device)
    assert torch.equal(twin(x), model(x))

print(f"{len(state)} tensors saved from {device.type} and loaded onto it")
