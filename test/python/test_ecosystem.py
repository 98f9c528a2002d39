"""The examples for libraries on top of PyTorch run, each in its own process. `make test-ecosystem` installs them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "ecosystem"
LIBRARIES = {path.stem: path.stem.split("_")[0] for path in sorted(EXAMPLES.glob("*.py"))}


def test_there_are_examples() -> None:
    assert set(LIBRARIES.values()) == {"accelerate", "lightning", "safetensors", "torchmetrics", "transformers"}


@pytest.mark.parametrize("example", LIBRARIES)
def test_example(name: str, example: str) -> None:
    if importlib.util.find_spec(LIBRARIES[example]) is None:
        pytest.skip(f"{LIBRARIES[example]} is not installed; `make test-ecosystem` installs it")
    process = subprocess.run(
        [sys.executable, EXAMPLES / f"{example}.py"],
        env=os.environ | {"TORCH_BACKEND": name},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert name in process.stdout.splitlines()[-1]
