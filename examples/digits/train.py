"""Train a small network on handwritten digits, on a torch_backend device and on native CPU, and compare.

``TORCH_BACKEND=xcpu python examples/digits/train.py``, or ``make demo``. Exits with 1 if the held-out accuracy is too
low or the two loss curves differ.
"""

import argparse
import sys
from pathlib import Path

import data
import plots
import report
import torch
from comparison import CPU, compare
from inspection import inspect
from rich.console import Console
from selection import select_device
from training import Settings

import torch_backend

REQUIRED_ACCURACY = 0.97


def main() -> int:
    """Run the demo; the exit status."""
    arguments = _arguments()
    console, errors = Console(), Console(stderr=True, highlight=False)
    try:
        device = select_device(arguments.device)
    except ValueError as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    # Images of 8x8 are too small to share out: more threads cost more time than they save, on both sides.
    torch.set_num_threads(arguments.threads)
    settings = Settings(arguments.epochs, arguments.batch_size, arguments.seed)
    console.print(f"Device {device}, torch {torch.__version__}, {arguments.threads} thread(s)", highlight=False)

    digits = data.load()
    comparison = compare(digits, device, settings, arguments.turns, console)
    if device == CPU:
        console.print(
            "This is native CPU: there is nothing to compare. Choose a device with --device or TORCH_BACKEND."
        )
    else:
        report.show_comparison(console, device, comparison, arguments.tolerance)
    plugin = torch_backend.active()
    if plugin is not None and plugin.name == device.type:
        inspection = inspect(digits, device, settings)
        report.show_kernels(console, inspection)
        report.show_fallbacks(console)
        report.show_memory(console, inspection)
        picture = arguments.output / f"digits-{device.type}.png"
        plots.save(picture, device, comparison, inspection)
        console.print(f"Curves and memory timeline: {picture}", highlight=False, soft_wrap=True)

    accuracy = comparison.device[0].accuracies[-1]
    if accuracy < REQUIRED_ACCURACY:
        errors.print(f"error: held-out accuracy {accuracy:.2%}, at least {REQUIRED_ACCURACY:.0%} is required")
        return 1
    if not comparison.difference <= arguments.tolerance:  # also if it is not a number
        errors.print(f"error: the loss curves differ by {comparison.difference:.1e}")
        return 1
    console.print(f"Held-out accuracy {accuracy:.2%} (at least {REQUIRED_ACCURACY:.0%} required)", style="bold green")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train on handwritten digits.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", help="a device of torch_backend, or cpu (default: the current accelerator)")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turns", type=int, default=3, help="runs on each side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=1e-5, help="largest difference of the loss curves")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="directory for the picture")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
