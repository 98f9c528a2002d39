"""The tests of the kit run on the active device: `TORCH_BACKEND=xcpu pytest kit/tests`."""

from fixtures import build_plugin, name, run_python, template
from torch_conformance.trials import trials

__all__ = ["build_plugin", "name", "run_python", "template", "trials"]
