"""The network: nothing in it knows about the device."""

import torch
from torch import nn


class DigitsNet(nn.Module):
    """Two convolutions and a linear layer for 8x8 images of ten digits."""

    def __init__(self) -> None:
        """Random weights, from torch's current seed."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits
