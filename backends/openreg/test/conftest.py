"""Fixtures: code in fresh processes."""

from torch_conformance.processes import run_python as run_python
from torch_conformance.processes import template as template
