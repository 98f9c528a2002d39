"""The conformance kit: one set of tests for every device, in levels.

``torch-backend check xcpu`` on the command line, or::

    from torch_backend.testing import LEVELS, check
    report = check("xcpu", levels=LEVELS[:3], quick=True)
    print(report.reached, [result.test for result in report.failures])

It needs the extra ``torch_backend[check]``. Tests lie in ``suite``, a folder per level; what a device does not declare
is not tested and reported as not offered. :func:`check_upstream` runs PyTorch's own tests.

:func:`check_leaks` is for your own tests: it finds device memory that stays in use.
"""

from typing import TYPE_CHECKING, Any

from torch_backend.testing.conformance import NoSuchDevice, check
from torch_backend.testing.levels import LEVELS, Level
from torch_backend.testing.levels import find as find_level
from torch_backend.testing.report.findings import DeviceDescription, Report
from torch_backend.testing.results import Result
from torch_backend.testing.upstream import UpstreamReport, check_upstream

if TYPE_CHECKING:
    from torch_backend.testing.leaks import Leak, LeakError, check_leaks

__all__ = [
    "LEVELS",
    "DeviceDescription",
    "Leak",
    "LeakError",
    "Level",
    "NoSuchDevice",
    "Report",
    "Result",
    "UpstreamReport",
    "check",
    "check_leaks",
    "check_upstream",
    "find_level",
]


def __getattr__(name: str) -> Any:
    """What needs torch, which processes that test the bare library do without."""
    if name in {"Leak", "LeakError", "check_leaks"}:
        from torch_backend.testing import leaks

        return getattr(leaks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
