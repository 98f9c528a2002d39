"""The long runs of test/chaos, in short. They use xcpu in processes of their own, whatever device the suite runs on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import clean_environment

CHAOS = Path(__file__).parents[1] / "chaos"


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(CHAOS), *arguments]
    process = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr[-4000:]}"
    return process.stdout


def test_threads_on_devices_with_delays() -> None:
    output = run("soak", "--minutes", "10", "--steps", "600")
    assert int(output.split()[0]) >= 600
    assert output.endswith("0 errors\n")


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (["--count", "1000"], 1000),
        (["--count", "300", "--modules", "--threads", "4"], 300),
        (["--count", "100", "--lose"], 64),
    ],
)
def test_calls_that_fail_at_random(arguments: list[str], least: int) -> None:
    """With ``--lose``, every fault loses a device, until none is left."""
    output = run("faults", *arguments)
    match = re.match(r"(\d+) faults in (\d+) steps", output)
    assert match, output
    assert int(match[1]) >= least
