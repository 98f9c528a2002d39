"""Time limits that blame no device for a machine that is busy with other things."""

import os


def factor() -> float:
    """How many times as long as on an idle machine something may take now: processes that want each processor, from 1.

    Of now, and of the last minute on average, the larger.
    """
    processors = os.cpu_count() or 1
    return max(1.0, _running() / processors, os.getloadavg()[0] / processors)


def seconds(limit: float) -> float:
    """A limit for an idle machine as it is to be waited for now."""
    return limit * factor()


def how_busy() -> str:
    """For messages about what was not ready in time: the machine's load."""
    load, processors = max(os.getloadavg()[0], _running()), os.cpu_count() or 1
    return f"{load:.1f} processes wanted the machine's {processors} processor{'s' if processors > 1 else ''}"


def _running() -> float:
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return float(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):  # not Linux
        return 0.0
