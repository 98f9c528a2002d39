"""The picture of a run."""

from pathlib import Path
from typing import Any

import torch
from comparison import Comparison
from inspection import Inspection
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DEVICE_STYLE: dict[str, Any] = {"color": "tab:blue", "linewidth": 2.5, "alpha": 0.6}
NATIVE_STYLE: dict[str, Any] = {"color": "black", "linewidth": 1, "linestyle": (0, (4, 3))}


def save(path: Path, device: torch.device, comparison: Comparison, inspection: Inspection) -> None:
    """Write loss and accuracy of both sides, and the device's memory over one epoch."""
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    loss, accuracy, memory = figure.subplots(1, 3)
    figure.suptitle(f"Handwritten digits on {device.type}: held-out accuracy {comparison.device[0].accuracies[-1]:.2%}")
    _loss(loss, device, comparison)
    _accuracy(accuracy, device, comparison)
    _memory(memory, inspection)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _loss(axes: Axes, device: torch.device, comparison: Comparison) -> None:
    axes.plot(comparison.device[0].losses, label=device.type, **DEVICE_STYLE)
    axes.plot(comparison.native[0].losses, label="native cpu", **NATIVE_STYLE)
    axes.set(
        title=f"Training loss (largest difference {comparison.difference:.1e})",
        xlabel="step",
        ylabel="cross-entropy",
        yscale="log",
    )
    _decorate(axes)


def _accuracy(axes: Axes, device: torch.device, comparison: Comparison) -> None:
    for label, runs, style in (
        (device.type, comparison.device, DEVICE_STYLE),
        ("native cpu", comparison.native, NATIVE_STYLE),
    ):
        percent = [100 * value for value in runs[0].accuracies]
        axes.plot(range(1, len(percent) + 1), percent, label=label, **style)
    axes.set(title="Held-out accuracy", xlabel="epoch", ylabel="%")
    _decorate(axes)


def _memory(axes: Axes, inspection: Inspection) -> None:
    times, sizes = zip(*inspection.memory, strict=True)
    mebibytes = [size / 2**20 for size in sizes]
    axes.fill_between(times, mebibytes, step="post", color="tab:blue", alpha=0.3)
    axes.step(times, mebibytes, where="post", color="tab:blue", linewidth=0.8, label="allocated")
    peak = inspection.peak_bytes / 2**20
    axes.axhline(peak, color="tab:red", linewidth=1, linestyle="--", label=f"peak {peak:.2f} MiB")
    axes.set(
        title="Device memory: one epoch, then evaluation",
        xlabel="ms",
        ylabel="MiB",
        ylim=(0, 1.25 * peak),
        xlim=(0, times[-1]),
    )
    _decorate(axes, loc="upper right", ncols=2)


def _decorate(axes: Axes, **legend: Any) -> None:
    axes.grid(alpha=0.3)
    axes.legend(**legend)
