"""Processes that run scenarios of distributed_scenarios.py, for test_distributed.py and test_device_collectives.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

from fixtures import clean_environment

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"}
DEVICE_COLLECTIVES = {"TORCH_BACKEND_XCPU_CCL": "1", "EXPECTED_PATH": "ccl.1"}


def run_ranks(scenarios: tuple[str, ...], place: Path, count: int, env: dict[str, str]) -> list[dict[str, str]]:
    """What each rank says of each scenario that it came to."""
    processes = []
    for rank in range(count):
        own = {"RANK": str(rank), "WORLD_SIZE": str(count), "PLACE": os.fspath(place / "store"), "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(
                [sys.executable, Path(__file__).with_name("distributed_scenarios.py"), *scenarios],
                env=clean_environment() | {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_DEVICES": "2", **own, **env},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=100)
            said.append(dict(json.loads(line) for line in out.splitlines()) | {"stderr": err})
    finally:
        for process in processes:
            process.kill()
    return said


def expect_good(scenario: str, said: list[dict[str, str]]) -> None:
    failed = [
        f"rank {rank}, {scenario}: {results.get(scenario, 'was not reached')}\n{results['stderr']}"
        for rank, results in enumerate(said)
        if results.get(scenario) != "good"
    ]
    assert not failed, "\n".join(failed)
