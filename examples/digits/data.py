"""scikit-learn's handwritten digits, which come with the package."""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

Loader = DataLoader[tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Digits:
    """Images of shape [1, 8, 8] in [0, 1] with their digits: to train on, and held out."""

    training: TensorDataset
    held_out: TensorDataset


def load() -> Digits:
    """1,797 images, a quarter of them held out."""
    images, digits = load_digits(return_X_y=True)
    split = train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=0)
    train_images, test_images, train_digits, test_digits = map(torch.from_numpy, split)
    return Digits(
        TensorDataset(_prepare(train_images), train_digits), TensorDataset(_prepare(test_images), test_digits)
    )


def _prepare(images: torch.Tensor) -> torch.Tensor:
    return images.float().div(16).view(-1, 1, 8, 8)


def training_loader(digits: Digits, batch_size: int, seed: int, pin_memory: bool) -> Loader:
    """Batches in an order that only the seed decides."""
    return DataLoader(
        digits.training,
        batch_size,
        shuffle=True,
        drop_last=True,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(seed),
    )


def held_out_loader(digits: Digits, batch_size: int, pin_memory: bool) -> Loader:
    """Batches of all that is held out."""
    return DataLoader(digits.held_out, batch_size, pin_memory=pin_memory)
