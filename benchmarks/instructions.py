"""Instructions in place of seconds: the same in every run, however busy the machine is. Valgrind counts them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

_FOLDER = "TORCH_BACKEND_BENCHMARKS_CALLGRIND"


def run_under_valgrind() -> int:
    """Run this command line again where instructions are counted, some 50 times slower; its exit status."""
    if shutil.which("valgrind") is None:
        print("Instructions are counted by valgrind, which is not installed: apt-get install valgrind", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        files = [f"--log-file={folder}/log", f"--callgrind-out-file={folder}/counts"]
        valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", *files]
        command = [*valgrind, sys.executable, "-m", "benchmarks", *sys.argv[1:]]
        return subprocess.run(command, env=os.environ | {_FOLDER: folder}, check=False).returncode


def are_counted() -> bool:
    """Whether this process is the one that `run_under_valgrind` has begun."""
    return _FOLDER in os.environ


class Counter:
    """A clock that is read at the beginning and at the end: 1e-9 for each instruction between the two."""

    def __init__(self) -> None:
        """Not begun."""
        self._begun = False
        self._measured = 0

    def __call__(self) -> float:
        """Read it."""
        self._begun = not self._begun
        if self._begun:
            torch._C._valgrind_toggle()
            return 0.0
        torch._C._valgrind_toggle_and_dump_stats()
        self._measured += 1
        dump = Path(os.environ[_FOLDER], f"counts.{self._measured}")
        lines = dump.read_text(encoding="utf-8").splitlines()
        dump.unlink()
        (total,) = (line.removeprefix("summary:") for line in lines if line.startswith("summary:"))
        return int(total) * 1e-9
