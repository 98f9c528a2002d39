"""Times of calls, of two devices in turn, with their spread."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch_conformance.synchronization import synchronize

Work = Callable[[], object]
"""One call of what is timed."""

_MOST_CALLS = 5000


@dataclass(frozen=True)
class Time:
    """Seconds that a call takes.

    Attributes:
        median: over rounds.
        low, high: quartiles, half of the rounds are between them.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: list[float]) -> "Time":
        """Of at least two rounds."""
        low, median, high = statistics.quantiles(rounds, n=4, method="inclusive")
        return cls(median, low, high)


def alternate(
    works: Mapping[str, Work], *, rounds: int, round_seconds: float, waits: bool
) -> tuple[dict[str, Time], dict[str, str]]:
    """Time the same work on each device, by torch name, in turn: what else the machine does meets all of them.

    Args:
        works: one call for each device.
        rounds: how often each has its turn.
        round_seconds: how long a turn takes, about.
        waits: whether the time lasts until the device is done; else until the calls have returned.

    Returns:
        the times, and what went wrong on the devices that have none.
    """
    times: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    calls: dict[str, int] = {}
    for device, work in works.items():
        try:
            for _ in range(3):  # what is compiled or cached is so then
                work()
            one = _turn(device, work, 1, waits=True)
            calls[device] = max(1, min(_MOST_CALLS, int(round_seconds / max(one, 1e-7))))
        except Exception as error:
            errors[device] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}"
    for _ in range(rounds):
        for device, count in calls.items():
            times.setdefault(device, []).append(_turn(device, works[device], count, waits=waits))
    return {device: Time.of(each) for device, each in times.items()}, errors


def _turn(device: str, work: Work, calls: int, *, waits: bool) -> float:
    """Seconds a call."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    if waits:
        synchronize(device)
    passed = (time.perf_counter() - start) / calls
    synchronize(device)
    return passed
