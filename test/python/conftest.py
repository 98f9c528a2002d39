"""The Python tests run on the active device: `TORCH_BACKEND=xcpu pytest test/python`."""

from fixtures import backend, build_plugin, name, run_python, template, two_devices, vendor_package
from kit_runs import templates

__all__ = ["backend", "build_plugin", "name", "run_python", "template", "templates", "two_devices", "vendor_package"]
