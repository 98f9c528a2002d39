"""The tests of the kit run on the active device: `TORCH_BACKEND=xcpu pytest kit/tests`."""

from fixtures import build_plugin, name, run_python, template
from kit_runs import templates

__all__ = ["build_plugin", "name", "run_python", "template", "templates"]
