"""Processes that run scenarios of rank_scenarios.py: the collectives of a device, between its ranks."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from torch_conformance.processes import clean_environment


def run_ranks(scenarios: tuple[str, ...], place: Path, count: int, env: Mapping[str, str]) -> list[dict[str, str]]:
    """What each rank says of each scenario that it came to. ``env`` names the device."""
    processes = []
    for rank in range(count):
        own = {"RANK": str(rank), "WORLD_SIZE": str(count), "PLACE": os.fspath(place / "store"), "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(
                [sys.executable, Path(__file__).with_name("rank_scenarios.py"), *scenarios],
                env=clean_environment() | own | dict(env),
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
    """Assert that every rank has come through the scenario."""
    failed = [
        f"rank {rank}, {scenario}: {results.get(scenario, 'was not reached')}\n{results['stderr']}"
        for rank, results in enumerate(said)
        if results.get(scenario) != "good"
    ]
    assert not failed, "\n".join(failed)
