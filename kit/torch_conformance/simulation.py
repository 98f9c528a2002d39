"""Devices on simulated drivers, for tests of their libraries where there is no such device.

A project's folder ``simulation`` is a CMake project that builds the driver's libraries, which the device opens in place
of the real ones and which refuse what the driver's rules forbid. ``python -m torch_conformance.simulation PROJECT``
builds them, in ``build/simulation`` of the project, and prints that folder.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch_backend.files import installed
from torch_conformance.processes import RunPython

Run = Callable[..., str]


def build(source: Path, into: Path, copied: Path) -> None:
    """Build a CMake project. ccache takes paths relative to ``copied``. Raises RuntimeError with the messages."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    environment = os.environ | {"CCACHE_BASEDIR": str(copied), "CCACHE_NOHASHDIR": "1"}
    configure = ["-S", str(source), "-B", str(into), f"-Dtorch_backend_DIR={installed.cmake_dir()}", *launcher]
    for command in (configure, ["--build", str(into)]):
        done = subprocess.run(["cmake", *command], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{source} does not build:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def libraries(project: Path) -> Path:
    """The folder of the simulated libraries, which are up to date. Processes may ask at once."""
    folder = project / "build" / "simulation"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(project / "simulation", folder, project)
    return folder


@dataclass(frozen=True)
class Simulated:
    """How tests of a device run code on the simulated driver, and see what that refused.

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


if __name__ == "__main__":
    print(libraries(Path(sys.argv[1]).resolve()))
