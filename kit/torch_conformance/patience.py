"""Time limits that blame no device for a machine that is busy with other things."""

import os

VARIABLE = "TORCH_CONFORMANCE_PATIENCE"


def factor() -> float:
    """How many times as long as on an idle machine something may take now: processes that want each processor, from 1.

    Of now, and of the last minute on average, the larger. Times TORCH_CONFORMANCE_PATIENCE, for what is slow by itself:
    an emulator.
    """
    processors = os.cpu_count() or 1
    return max(1.0, _running() / processors, os.getloadavg()[0] / processors) * _of_environment()


def seconds(limit: float) -> float:
    """A limit for an idle machine as it is to be waited for now."""
    return limit * factor()


def how_busy() -> str:
    """For messages about what was not ready in time: the machine's load."""
    load, processors = max(os.getloadavg()[0], _running()), os.cpu_count() or 1
    return f"{load:.1f} processes wanted the machine's {processors} processor{'s' if processors > 1 else ''}"


def _of_environment() -> float:
    """At least 1, whatever is written there."""
    try:
        return max(1.0, float(os.environ.get(VARIABLE, 1)))
    except ValueError:
        return 1.0


def _running() -> float:
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return float(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):  # not Linux
        return 0.0
