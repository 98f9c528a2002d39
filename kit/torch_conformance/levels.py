"""The levels of the conformance kit: what each is called, what reaching it means, and where its tests lie."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUITE = Path(__file__).parent / "suite"
"""The folder that holds one folder of tests per level."""


@dataclass(frozen=True)
class Level:
    """One level of conformance.

    Attributes:
        number: 1 is the first that has tests.
        name: what the command line and the report call it.
        means: what a device that has reached it can do.
        folder: below :data:`SUITE`, and how the names of its tests start.
        needs_torch: False for tests of the bare device library, which run in processes that never import torch.
        seconds: what its quick tests take on xcpu with two processors, for how much of a run is left.
    """

    number: int
    name: str
    means: str
    folder: str
    needs_torch: bool = True
    seconds: float = 20.0

    @property
    def path(self) -> Path:
        """The folder with its tests."""
        return SUITE / self.folder

    def files(self) -> list[Path]:
        """The files with its tests."""
        return sorted(self.path.glob("test_*.py"))


DEVICE = Level(0, "device", "`torch-backend doctor` finds nothing that keeps the device from working", "device")
"""What every run begins with. Its steps are the doctor's, in :mod:`torch_backend.diagnosis`."""

LEVELS = (
    Level(1, "abi", "the device library keeps the contract of device.h", "abi", False, 5.0),
    Level(2, "tensor", "tensors are created, viewed, copied, saved and exchanged as on the CPU", "tensor"),
    Level(3, "ops", "operators and their gradients give what they give on the CPU", "ops"),
    Level(4, "training", "models train, stop and resume as on the CPU", "training"),
    Level(5, "async", "streams, events and cached memory keep the order of work", "async_"),
    Level(6, "distributed", "processes with a device each work together", "distributed"),
    Level(7, "compile", "torch.compile gives what eager mode gives", "compile", seconds=120.0),
)

FROM_DEVICE_ON = (DEVICE, *LEVELS)
"""All that a report can name."""


def level_of(test: str) -> Level:
    """The level that the test with this id belongs to."""
    folder = test.split("/", 1)[0]
    return next(level for level in FROM_DEVICE_ON if level.folder == folder)


def are_bare(files: Iterable[Path]) -> bool:
    """Whether all of these are of levels that test the bare device library."""
    bare = [level.path for level in LEVELS if not level.needs_torch]
    return all(any(file.resolve().is_relative_to(folder) for folder in bare) for file in files)


def find(text: str) -> Level:
    """The level with this number or name.

    Raises ValueError, naming the levels, if there is none.
    """
    for level in FROM_DEVICE_ON:
        if text in (str(level.number), level.name):
            return level
    known = ", ".join(f"{level.number} ({level.name})" for level in FROM_DEVICE_ON)
    raise ValueError(f"There is no level '{text}'. There are {known}.")
