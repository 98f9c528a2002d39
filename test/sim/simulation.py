"""Builds the simulated driver of a device, in ``build/simulations``: ``python test/sim/simulation.py npu``."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {"cuda": ROOT / "test" / "sim" / "cuda", "npu": ROOT / "test" / "sim" / "ascendcl"}
"""By the device's folder in ``backends``."""


def build(source: Path, into: Path, copied: Path) -> None:
    """Build a CMake project. ccache takes paths relative to ``copied``. Raises RuntimeError with the messages."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    environment = os.environ | {"CCACHE_BASEDIR": str(copied), "CCACHE_NOHASHDIR": "1"}
    for command in (["cmake", "-S", source, "-B", into, *launcher], ["cmake", "--build", into]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{source} does not build:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def libraries(device: str) -> Path:
    """The folder of the simulated libraries, which are up to date. Processes may ask at once."""
    folder = ROOT / "build" / "simulations" / device
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(SOURCES[device], folder, ROOT)
    return folder


if __name__ == "__main__":
    print(libraries(sys.argv[1]))
