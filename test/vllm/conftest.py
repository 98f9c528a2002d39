import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

# Processes of the engine are this process's own where it is one, so that its counts are.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
NEW = 12
SMALL_CACHE = {"kv_cache_memory_bytes": 64 << 20}
GREEDY = {"temperature": 0, "max_tokens": NEW}
Checkpoint = Callable[[str], Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Generate = Callable[..., dict[str, Any]]


def prompts(count: int) -> list[list[int]]:
    """Of several lengths: some are longer than what one step takes (64), and two begin alike for several blocks."""
    random = torch.Generator().manual_seed(1)
    made = [torch.randint(0, 256, (3 + 37 * i % 90,), generator=random).tolist() for i in range(count)]
    made[-1] = made[1] + [7, 8, 9]
    return made


@pytest.fixture(scope="session")
def device() -> str:
    """The name of the device that is tested."""
    return os.environ["TORCH_BACKEND"]


@pytest.fixture
def told(device: str) -> str:
    """The device, if variables say how many there are and what memory they have."""
    if device != "xcpu":
        pytest.skip(f"{device} has the devices and the memory that there are; xcpu's are what variables say")
    return device


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a family's, once."""
    import checkpoints

    folder = tmp_path_factory.mktemp("checkpoints")
    return functools.cache(lambda family: checkpoints.write(family, folder))


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs generate.py with a checkpoint, a request, and variables of the environment."""

    def run(path: Path, request: dict[str, Any], **variables: str) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, str(Path(__file__).with_name("generate.py")), str(path), json.dumps(request)]
        environment = os.environ | ENVIRONMENT | variables
        return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=900, check=False)

    return run


@pytest.fixture(scope="session")
def generate(run: Run) -> Generate:
    """Its result."""

    def generate(path: Path, request: dict[str, Any], **variables: str) -> dict[str, Any]:
        process = run(path, request, **variables)
        assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-8000:]
        return json.loads(next(line for line in process.stdout.splitlines() if line.startswith('{"tokens"')))

    return generate
