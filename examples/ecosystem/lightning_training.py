"""Lightning on the device: an Accelerator of our own, as Lightning documents it, trains with mixed precision."""

import tempfile
from typing import Any

import lightning
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, TensorDataset

device = torch.accelerator.current_accelerator()
assert device is not None


class BackendAccelerator(Accelerator):
    """The device that PyTorch calls its accelerator, for Lightning."""

    def setup_device(self, device: torch.device) -> None:
        """Make the process's device the current one."""
        torch.accelerator.set_device_index(device.index or 0)

    def teardown(self) -> None:
        """Give cached memory back."""
        torch.accelerator.empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """What the caching allocator counts."""
        return dict(torch.accelerator.memory_stats(device))

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        """A number of devices, or the devices."""
        return list(range(devices)) if isinstance(devices, int) else list(devices)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """PyTorch's names for them."""
        assert device is not None
        return [torch.device(device.type, index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """How many there are."""
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        """Whether there is one."""
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        """What Lightning calls it."""
        assert device is not None
        return device.type


class Classifier(lightning.LightningModule):
    """Tells which of 16 numbers is the largest."""

    def __init__(self) -> None:
        """A small network."""
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        inputs, labels = batch
        assert device is not None
        assert inputs.device.type == device.type
        output = self.network(inputs)
        assert output.dtype is torch.bfloat16
        loss = torch.nn.functional.cross_entropy(output, labels)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=5e-3)


lightning.seed_everything(0)
x = torch.randn(256, 16)
data = DataLoader(TensorDataset(x, x.argmax(1)), batch_size=32, shuffle=True)
model = Classifier()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        strategy=SingleDeviceStrategy(device=torch.device(device.type, 0), accelerator=BackendAccelerator()),
        plugins=[MixedPrecision("bf16-mixed", device.type)],
        max_epochs=8,
        gradient_clip_val=1.0,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    assert trainer.checkpoint_callback is not None
    restored = Classifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path, map_location=device)
assert next(restored.parameters()).device.type == device.type
assert model.losses[-1] < model.losses[0] / 1.5, f"the losses are {model.losses}"
print(
    f"Lightning on {trainer.strategy.root_device}: the loss went from {model.losses[0]:.2f} to {model.losses[-1]:.2f}"
)
