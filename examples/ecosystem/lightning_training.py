"""Lightning: `Trainer` with mixed precision, on one device or, with a strategy as the argument, on all.

`lightning_training.py` trains on one, `lightning_training.py ddp` and `lightning_training.py fsdp` on two.
"""

import sys
import tempfile

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.accelerator.current_accelerator() or torch.device("cpu")
strategy = sys.argv[1] if len(sys.argv) > 1 else "auto"


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
        assert inputs.device.type == device.type
        output = self.network(inputs)
        assert output.dtype is torch.bfloat16
        loss = torch.nn.functional.cross_entropy(output, labels)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.trainer.model.parameters(), lr=5e-3)


lightning.seed_everything(0)
x = torch.randn(256, 16)
data = DataLoader(TensorDataset(x, x.argmax(1)), batch_size=32, shuffle=True)
model = Classifier()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        devices=1 if strategy == "auto" else 2,
        strategy=strategy,
        precision="bf16-mixed",
        max_epochs=8,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    assert trainer.checkpoint_callback is not None
    if strategy == "auto":
        restored = Classifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path, map_location=device)
        assert next(restored.parameters()).device.type == device.type
assert model.losses[-1] < model.losses[0] / 1.5, f"the losses are {model.losses}"
if trainer.is_global_zero:
    devices = f"{trainer.world_size} {trainer.strategy.root_device.type}"
    print(f"Lightning on {devices}: the loss went from {model.losses[0]:.2f} to {model.losses[-1]:.2f}")
