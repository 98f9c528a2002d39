"""The conformance kit on the installed device, over the simulated driver: the bare library."""

from pathlib import Path

import pytest
from torch_conformance import LEVELS, check


def test_the_device_conforms(simulation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_BACKEND_XCUDA_LIBRARY_PATH", str(simulation))
    # The other levels, on commands that are late: see README.md.
    report = check("xcuda", levels=LEVELS[:1], quick=True)
    failures = [f"{result.test}: {result.message}" for result in report.failures]
    assert report.ok, "\n".join([*report.problems, *failures])
