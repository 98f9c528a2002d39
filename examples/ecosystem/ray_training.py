"""Ray Train: two workers train one model, each on a device of its own, or on the CPU if none is active."""

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def train() -> tuple[float, list[str]]:
    """Of one worker; the loss and the devices of both."""
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(8, 2))
    x = torch.randn(256, 8)
    batches = prepare_data_loader(DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        for inputs, targets in batches:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    device = get_device()
    assert inputs.device == device == next(model.parameters()).device
    devices = [""] * 2
    torch.distributed.all_gather_object(devices, str(device))
    weights = [torch.empty_like(model.module.weight) for _ in range(2)]
    torch.distributed.all_gather(weights, model.module.weight.detach())
    assert torch.equal(*weights), "the workers have trained different models"
    return loss.item(), devices


if __name__ == "__main__":
    accelerator = torch.accelerator.current_accelerator()
    resources = {} if accelerator is None else {accelerator.type: 1}
    there = {name: torch.accelerator.device_count() for name in resources}
    ray.init(num_cpus=3, resources=there, include_dashboard=False, log_to_driver=False)
    scaling = ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1, **resources})
    loss, devices = TorchTrainer(train, scaling_config=scaling).fit().return_value
    assert loss < 0.5, loss
    print(f"loss {loss:.3f} on {' and '.join(devices)}")
