"""Train the network of examples/digits on several devices at once, each with a process of its own.

``TORCH_BACKEND=xcpu torchrun --nproc-per-node 2 examples/ddp/train.py``, or ``--nproc-per-node xcpu`` for all devices.
No line is for one device: without an accelerator it trains on the CPU, over Gloo.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, str(Path(__file__).parents[1] / "digits"))

import data  # of examples/digits, as is the model
from model import DigitsNet


def main() -> None:
    """Join the other processes, train, and say from one of them how well it went."""
    parser = argparse.ArgumentParser(description="Train on the digits with DistributedDataParallel.")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    device = own_device()
    distributed.init_process_group(device_id=device if device.type != "cpu" else None)
    digits = data.load()
    model = train(digits, device, arguments.epochs)
    if distributed.get_rank() == 0:
        backend = distributed.group.WORLD._get_backend(device).name()
        print(f"{distributed.get_world_size()} processes over {backend}: {accuracy(model, digits, device):.1%} right")
    distributed.destroy_process_group()


def own_device() -> torch.device:
    """The device of this process: that with its number on this machine, round robin."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return torch.device("cpu")
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(accelerator.type, index)


def train(digits: data.Digits, device: torch.device, epochs: int) -> DigitsNet:
    """Every process trains on its share of the images; gradients are averaged over all of them."""
    torch.manual_seed(0)
    model = DigitsNet().to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-3)
    sampler = DistributedSampler(digits.training, seed=0)
    loader = DataLoader(digits.training, batch_size=32, sampler=sampler, pin_memory=device.type != "cpu")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
            optimizer.zero_grad()
            F.cross_entropy(parallel(images), labels).backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: DigitsNet, digits: data.Digits, device: torch.device) -> float:
    """Of one process's model on all held-out images."""
    model.eval()
    hits = [model(images.to(device)).argmax(1).cpu() == labels for images, labels in DataLoader(digits.held_out, 256)]
    return torch.cat(hits).float().mean().item()


if __name__ == "__main__":
    main()
