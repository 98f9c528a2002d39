"""Hugging Face Accelerate on the device: a training loop with mixed precision, gradient accumulation and checkpoints.

Accelerate looks for the devices that it knows by name. ACCELERATE_TORCH_DEVICE names any other.
"""

import os
import tempfile

import torch

device = torch.accelerator.current_accelerator()
assert device is not None
os.environ["ACCELERATE_TORCH_DEVICE"] = device.type

from accelerate import Accelerator  # noqa: E402
from accelerate.utils import set_seed  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
assert accelerator.device.type == device.type, f"Accelerate chose {accelerator.device}"

set_seed(0)
x = torch.randn(256, 16)
data = DataLoader(TensorDataset(x, x.argmax(1)), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)

losses = []
for _ in range(10):
    for inputs, labels in data:
        assert inputs.device.type == device.type
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).item())
assert losses[-1] < losses[0] / 1.5, f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"

with tempfile.TemporaryDirectory() as folder:
    before = [parameter.clone() for parameter in model.parameters()]
    accelerator.save_state(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(folder)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
print(f"Accelerate on {accelerator.device}: the loss went from {losses[0]:.2f} to {losses[-1]:.2f}")
