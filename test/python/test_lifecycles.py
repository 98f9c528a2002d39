"""Processes that start and end with work pending, are killed, and start others: nothing of them stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import clean_environment

CYCLES = int(os.environ.get("LIFECYCLES", "24"))
"""How many; all kinds are among the first 24."""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans and shared memory are Linux's")
def test_nothing_stays() -> None:
    directory = Path(__file__).parent
    process = subprocess.run(
        [sys.executable, directory / "lifecycles.py", str(CYCLES)],
        env=clean_environment() | {"TORCH_BACKEND": "none", "PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.endswith(f"{CYCLES} cycles, nothing left\n")
