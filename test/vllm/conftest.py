import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
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


class Server:
    """A process of generate.py: it loads vLLM once, and makes an engine for each request."""

    def __init__(self, log: Path, **variables: str) -> None:
        self._log = log
        with log.open("w") as messages:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("generate.py")],
                env=os.environ | ENVIRONMENT | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )

    def answer(self, checkpoint: Path, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"checkpoint": str(checkpoint)} | request) + "\n")
        self._process.stdin.flush()
        timer = threading.Timer(900, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:  # vLLM's messages among them
                if line.startswith(('{"tokens"', '{"error"')):
                    return json.loads(line)
        finally:
            timer.cancel()
        return {"error": f"it ended with {self._process.wait()}: {self._log.read_text()[-8000:]}"}

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="session")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generate]:
    """What generate.py answers, an error too: one process serves all, but a request with variables has its own."""
    folder = tmp_path_factory.mktemp("servers")
    servers: list[Server] = []

    def answer(checkpoint: Path, request: dict[str, Any], **variables: str) -> dict[str, Any]:
        if variables:
            with contextlib.closing(Server(folder / "own.txt", **variables)) as server:
                return server.answer(checkpoint, request)
        if not servers or not servers[-1].is_alive():
            servers.append(Server(folder / f"{len(servers)}.txt"))
        return servers[-1].answer(checkpoint, request)

    yield answer
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def generate(answer: Generate) -> Generate:
    """Its result."""

    def generate(checkpoint: Path, request: dict[str, Any], **variables: str) -> dict[str, Any]:
        result = answer(checkpoint, request, **variables)
        assert "error" not in result, result["error"]
        return result

    return generate
