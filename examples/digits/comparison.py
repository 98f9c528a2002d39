"""The same training on the device and on native CPU."""

import statistics
from dataclasses import dataclass
from functools import partial

import data
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from training import Run, Settings, train

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Comparison:
    """Runs on both sides, which took turns."""

    device: list[Run]
    native: list[Run]

    @property
    def ratio(self) -> float:
        """Time on the device over time on native CPU: the median over the turns."""
        pairs = zip(self.device, self.native, strict=True)
        return statistics.median(device.seconds / native.seconds for device, native in pairs)

    @property
    def difference(self) -> float:
        """The largest difference between the two loss curves."""
        pairs = zip(self.device[0].losses, self.native[0].losses, strict=True)
        return max(abs(device - native) for device, native in pairs)


def seconds(runs: list[Run]) -> float:
    """The median time of the runs."""
    return statistics.median(run.seconds for run in runs)


def compare(digits: data.Digits, device: torch.device, settings: Settings, turns: int, console: Console) -> Comparison:
    """Train ``turns`` times on each side, showing progress; only on the device if that is the CPU itself."""
    sides: dict[torch.device, list[Run]] = {device: [], CPU: []}
    # The first call of an operator finds its kernel and its libraries; that is not what is compared.
    for side in sides:
        train(digits, side, Settings(epochs=1, batch_size=settings.batch_size, seed=settings.seed))
    with _progress(console) as progress:
        for turn in range(1, turns + 1):
            for side, runs in sides.items():
                steps = settings.epochs * (len(digits.training) // settings.batch_size)
                task = progress.add_task(f"training on {side.type}, run {turn} of {turns}", total=steps)
                runs.append(train(digits, side, settings, partial(progress.advance, task)))
    return Comparison(sides[device], sides[CPU])


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
