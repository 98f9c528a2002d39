"""Fixtures: code in fresh processes, and the simulated driver."""

from pathlib import Path

import pytest
from torch_conformance.processes import run_python as run_python
from torch_conformance.processes import template as template
from torch_conformance.simulation import libraries


@pytest.fixture(scope="session")
def simulation() -> Path:
    """The folder of the simulated libraries."""
    return libraries(Path(__file__).parents[1])
