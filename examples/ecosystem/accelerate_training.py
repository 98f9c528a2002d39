"""Hugging Face Accelerate: a training loop with mixed precision, gradient accumulation and checkpoints.

In one process, or in many: `torchrun --nproc_per_node=2`, `accelerate launch --num_processes=2`.
"""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from torch.utils.data import DataLoader, TensorDataset

device = torch.accelerator.current_accelerator() or torch.device("cpu")
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
        losses.append(accelerator.gather(loss.detach()).mean().item())
assert losses[-1] < losses[0] / 1.5, f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"

with tempfile.TemporaryDirectory() as folder:
    folder = broadcast_object_list([folder])[0]
    before = [parameter.clone() for parameter in model.parameters()]
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()  # the first rank writes what all read
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(folder)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    for parameter in model.parameters():  # the ranks have trained one model
        assert (accelerator.gather(parameter.detach().flatten()[None]) == parameter.flatten()).all()
    accelerator.wait_for_everyone()
devices = f"{accelerator.num_processes} {device.type}"
accelerator.print(f"Accelerate on {devices}: the loss went from {losses[0]:.2f} to {losses[-1]:.2f}")
accelerator.end_training()
