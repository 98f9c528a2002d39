"""Where each operator's kernel for the active device comes from, which kernels a program uses, and how to add one."""

import torch  # noqa: F401  # see Note [Import order] in torch_backend/devices/autoload.py

from torch_backend.files import native

native.require()
from torch_backend.operators.calls import CallCounts, OperatorCalls, count_calls  # noqa: E402  # after require(), which explains a failure
from torch_backend.operators.derivatives import Derivative  # noqa: E402
from torch_backend.operators.explanation import (  # noqa: E402
    Explanation,
    OverloadExplanation,
    TracedOperator,
    explain,
)
from torch_backend.operators.needed import NeededOperator, needed_operators  # noqa: E402
from torch_backend.operators.registrations import REGISTRATION_KEYS, register_plugin_kernel, registrations  # noqa: E402
from torch_backend.operators.sources import SOURCES, Source, operator_sources  # noqa: E402
from torch_backend.operators.target import KernelTarget  # noqa: E402

__all__ = [
    "REGISTRATION_KEYS",
    "SOURCES",
    "CallCounts",
    "Derivative",
    "Explanation",
    "KernelTarget",
    "NeededOperator",
    "OperatorCalls",
    "OverloadExplanation",
    "Source",
    "TracedOperator",
    "count_calls",
    "explain",
    "needed_operators",
    "operator_sources",
    "register_plugin_kernel",
    "registrations",
]
