"""Tests that every device on a simulated driver has: a class of its project's tests inherits :class:`SimulatedTests`.

Beside them the conformance kit runs on the device, and shows what is true of every one.
"""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from torch_conformance import variants
from torch_conformance.processes import RunPython
from torch_conformance.ranks import expect_good, run_ranks
from torch_conformance.simulation import Simulated


class SimulatedTests:
    """A subclass says which device it is.

    Attributes:
        device: which.
        without_collectives: the driver's libraries that it works with, its own collectives not among them.
        settings: more of the environment of ranks.
    """

    device: ClassVar[Simulated]
    without_collectives: ClassVar[tuple[str, ...]]
    settings: ClassVar[dict[str, str]] = {}

    def test_devices_are_counted(self, run_python: RunPython, simulation: Path) -> None:
        """It has as many devices as the driver."""
        said = self.device.said(run_python, simulation, **{f"{self.device.prefix}_DEVICES": "3"})
        assert "devices: 3\n[2.0, 2.0]\n" in said

    @pytest.mark.parametrize(
        "scenarios", ["kit", "slots crossing empty reductions rare_dtypes", "callbacks not_connected"]
    )
    def test_ranks_in_two_processes(self, simulation: Path, tmp_path: Path, scenarios: str) -> None:
        """With the kit's training in parallel (DDP) among them."""
        said = self.device.ranks(scenarios.split(), simulation, tmp_path, **self.settings)
        for scenario in scenarios.split():
            expect_good(scenario, said)

    def test_without_collectives_of_its_own_gloo_serves(self, simulation: Path, tmp_path: Path) -> None:
        """Training in parallel works without the vendor's library."""
        for library in self.without_collectives:
            shutil.copy(simulation / library, tmp_path)
        said = run_ranks(("kit",), tmp_path, 2, {"TORCH_BACKEND": self.device.name, self.device.path: str(tmp_path)})
        expect_good("kit", said)

    def test_every_variant_can_be_made(self) -> None:
        """Each edits what is there, and is tried by tests that are there."""
        variants.read(self.device.project).check()
