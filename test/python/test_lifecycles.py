"""Processes that start and end with work pending, are killed, and start others: nothing of them stays."""

import os
import sys
from pathlib import Path

import pytest
from fixtures import run_program

CYCLES = int(os.environ.get("LIFECYCLES", "24"))
"""How many; all kinds are among the first 24."""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="orphans and shared memory are Linux's")
def test_nothing_stays() -> None:
    directory = Path(__file__).parent
    program = (directory / "lifecycles.py", str(CYCLES))
    process = run_program("python", *program, TORCH_BACKEND="none", PYTHONPATH=directory)
    assert process.stdout.endswith(f"{CYCLES} cycles, nothing left\n")
