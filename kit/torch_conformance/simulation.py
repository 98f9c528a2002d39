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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_backend.files import installed
from torch_conformance.processes import RunPython
from torch_conformance.ranks import run_ranks

Run = Callable[..., str]


def build(source: Path, into: Path, copied: Path) -> None:
    """Build a CMake project. ccache takes paths relative to ``copied``. Raises RuntimeError with the messages."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    environment = os.environ | {"CCACHE_BASEDIR": str(copied), "CCACHE_NOHASHDIR": "1"}
    found = [f"-Dtorch_backend_DIR={installed.cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    configure = ["-S", str(source), "-B", str(into), *found, *launcher]
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
    """How tests of a device run programs on the simulated driver, and see what that refused.

    Attributes:
        name: of the device.
        project: its folder, whose ``test/programs`` are the programs.
        path: the variable that names the folder of its driver's libraries.
        prefix: of the simulation's own variables.
    """

    name: str
    project: Path
    path: str
    prefix: str

    def runner(self, run_python: RunPython, libraries: Path, folder: Path) -> Run:
        """Runs a program on the device, whose commands are late, and returns what it prints.

        The simulation refuses what has ``refused``, or nothing. ``folder`` is for its log.
        """
        programs = self.project / "test" / "programs"
        log = folder / "refusals"

        def run(program: str, *arguments: str, refused: str = "", path: Path = libraries, **variables: str) -> str:
            code = f"""
import runpy, sys, torch, torch_backend
torch_backend.activate({self.name!r})
torch_backend.fallback.set_policy(None, "error")
torch.manual_seed(0)
sys.argv[1:] = {arguments!r}
sys.path.insert(0, {str(programs)!r})
runpy.run_path({str(programs / program)!r} + ".py", run_name="__main__")
"""
            output = run_python(code, env={**self.environment(path, log), **variables}).stdout
            self.expect_refusals(log, refused)
            assert not refused or log.exists()
            return output

        return run

    def environment(self, libraries: Path, log: Path) -> dict[str, str]:
        """Of a process on the simulated driver, whose commands are late."""
        return {self.path: str(libraries), f"{self.prefix}_LOG": str(log), f"{self.prefix}_DELAY_US": "0-300"}

    def expect_refusals(self, log: Path, refused: str) -> None:
        """Assert that the simulation has refused nothing but what has the text."""
        refusals = log.read_text().splitlines() if log.exists() else []
        assert all(refused and refused in line for line in refusals), refusals

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

    def ranks(
        self, scenarios: Sequence[str], libraries: Path, folder: Path, refused: str = "", **variables: str
    ) -> list[dict[str, str]]:
        """What two processes say of scenarios, over the device's own collectives.

        The simulation may refuse what has ``refused``: whether it has to, is a matter of who comes first.
        """
        log = folder / "refusals"
        environment = {**self.environment(libraries, log), "TORCH_BACKEND": self.name, "EXPECTED_PATH": "ccl.1"}
        said = run_ranks(tuple(scenarios), folder, 2, {**environment, **variables})
        self.expect_refusals(log, refused)
        return said


if __name__ == "__main__":
    print(libraries(Path(sys.argv[1]).resolve()))
