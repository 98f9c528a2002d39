"""Why a device does not appear or does not work, for ``torch-backend doctor``.

Device libraries and vendors' packages are loaded in processes of their own: a crash or an endless wait is a finding.
"""

from torch_backend.diagnosis.devices import option_keys
from torch_backend.diagnosis.diagnosis import STEP_SECONDS, diagnose
from torch_backend.diagnosis.finding import Finding, Severity

__all__ = ["STEP_SECONDS", "Finding", "Severity", "diagnose", "option_keys"]
