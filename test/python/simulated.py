"""Devices on the simulated drivers of ``test/sim``: how their tests run code and see what the driver refused."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures import ROOT, RunPython

sys.path.insert(0, str(ROOT / "test" / "sim"))

from simulation import libraries  # which is there

__all__ = ["Run", "Simulated", "libraries"]

Run = Callable[..., str]


@dataclass(frozen=True)
class Simulated:
    """A device.

    Attributes:
        name: of the device.
        path: the variable that names the folder of its driver's libraries.
        log: the variable that names the file to which the simulation writes what it refuses.
    """

    name: str
    path: str
    log: str

    def runner(self, run_python: RunPython, libraries: Path, log: Path) -> Run:
        """Runs code on the device, returns what it prints. The simulation refuses what has ``refused``, or nothing."""

        def run(code: str, refused: str = "", path: Path = libraries, **variables: str) -> str:
            start = f"import torch, torch_backend\ntorch_backend.activate('{self.name}')\n"
            start += "torch_backend.fallback.set_policy(None, 'error')\n"
            output = run_python(start + code, env={self.path: path, self.log: log, **variables}).stdout
            refusals = log.read_text().splitlines() if log.exists() else []
            assert all(refused and refused in line for line in refusals), refusals
            assert not refused or refusals
            return output

        return run

    def said(self, run_python: RunPython, libraries: Path, **variables: str) -> str:
        """What it says of itself: its devices and a first result, or why there is none."""
        code = f"""
        import torch_backend
        try:
            torch_backend.activate("{self.name}")
            import torch
            print("devices:", torch.{self.name}.device_count())
            print((torch.ones(2, device="{self.name}") + 1).tolist())
        except RuntimeError as error:
            print(error)
        """
        return run_python(code, env={self.path: libraries, **variables}).stdout
