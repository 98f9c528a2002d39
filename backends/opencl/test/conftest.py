"""Fixtures: code in fresh processes, and tests that need a driver."""

from pathlib import Path

import pytest
from torch_conformance.processes import RunPython
from torch_conformance.processes import run_python as run_python
from torch_conformance.processes import template as template

COUNT = """
    import torch_backend
    try:
        torch_backend.activate("ocl", options={options})
    except (RuntimeError, ValueError) as error:
        print(error)
    else:
        import torch
        print("devices:", torch.ocl.device_count())
"""


def said(run_python: RunPython, drivers: Path | None = None, **options: str) -> str:
    """How many devices there are, or why there is none."""
    environment = {} if drivers is None else {"OCL_ICD_VENDORS": drivers}
    return run_python(COUNT.replace("{options}", repr(options)), env=environment).stdout


@pytest.fixture
def driver(run_python: RunPython) -> None:
    """Skips where OpenCL has no device."""
    if "devices: " not in (output := said(run_python)):
        pytest.skip(output)
