"""The Python tests run on the active device: `TORCH_BACKEND=xcpu pytest test/python`."""

from fixtures import backend, build_plugin, name, run_python, template, two_devices, vendor_package
from torch_conformance.trials import trials

__all__ = ["backend", "build_plugin", "name", "run_python", "template", "trials", "two_devices", "vendor_package"]
