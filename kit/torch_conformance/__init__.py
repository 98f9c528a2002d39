"""The conformance kit: one set of tests for every device, in levels.

``torch-backend check xcpu`` on the command line, or::

    from torch_conformance import LEVELS, check
    report = check("xcpu", levels=LEVELS[:3], quick=True)
    print(report.reached, [result.test for result in report.failures])

``pip install torch_backend[check]`` brings it. Tests lie in ``suite``, a folder per level; what a device does not
declare is not tested and reported as not offered. :func:`check_upstream` runs PyTorch's own tests.
"""

from torch_conformance.conformance import check
from torch_conformance.device_profile import Profile
from torch_conformance.levels import LEVELS, Level
from torch_conformance.levels import find as find_level
from torch_conformance.report.findings import DeviceDescription, Report
from torch_conformance.results import Result
from torch_conformance.routes import NoSuchDevice
from torch_conformance.routes.pytorch import InPyTorch
from torch_conformance.upstream import UpstreamReport, check_upstream

__all__ = [
    "LEVELS",
    "DeviceDescription",
    "InPyTorch",
    "Level",
    "NoSuchDevice",
    "Profile",
    "Report",
    "Result",
    "UpstreamReport",
    "check",
    "check_upstream",
    "find_level",
]
