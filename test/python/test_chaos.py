"""The long runs of test/chaos, in short. They use xcpu in processes of their own, whatever device the suite runs on."""

import re
from pathlib import Path

import pytest
from fixtures import run_program

CHAOS = Path(__file__).parents[1] / "chaos"


def run(*arguments: str) -> str:
    return run_program("python", "-W", "ignore", CHAOS, *arguments).stdout


@pytest.mark.long
def test_threads_on_devices_with_delays() -> None:
    output = run("soak", "--minutes", "10", "--steps", "200")
    assert int(output.split()[0]) >= 200
    assert output.endswith("0 errors\n")


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        pytest.param(["--count", "300"], 300, marks=pytest.mark.long),
        pytest.param(["--count", "100", "--modules", "--threads", "4"], 100, marks=pytest.mark.long),
        (["--count", "100", "--lose"], 64),
    ],
)
def test_calls_that_fail_at_random(arguments: list[str], least: int) -> None:
    """With ``--lose``, every fault loses a device, until none is left."""
    output = run("faults", *arguments)
    match = re.match(r"(\d+) faults in (\d+) steps", output)
    assert match, output
    assert int(match[1]) >= least
