"""Times two callables against each other in one process."""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from benchmarks.instructions import Counter

Work = Callable[[], object]
Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time, "instructions": Counter()}
"""Seconds that passed; seconds that this process's threads ran, which is what counts where others use the machine; or a
nanosecond each for what they executed, which is the same in every run."""

COUNTED_CALLS = 20


@dataclass(frozen=True)
class Comparison:
    """Seconds of one call on each side, and how much longer the device takes."""

    device_s: float
    native_s: float
    ratio: float


_clock = CLOCKS["wall"]


def use_clock(name: str) -> None:
    """Measure with that one of `CLOCKS` from now on."""
    global _clock
    _clock = CLOCKS[name]


def compare(on_device: Work, native: Work, *, rounds: int = 201, round_s: float = 0.0005) -> Comparison:
    """Run both sides by turns and return medians.

    A round calls each side often enough to last about ``round_s``: short, so that most rounds are not interrupted. The
    ratio is the median of the rounds' ratios: a machine that becomes slower for a while slows both sides of a round.
    """
    if isinstance(_clock, Counter):  # which is exact
        rounds = 1
    device_calls, native_calls = _calls_per_round(on_device, round_s), _calls_per_round(native, round_s)
    device_s, native_s = [], []
    with _undisturbed():
        for turn in range(rounds):
            # Who goes first finds colder caches, so the sides take turns at that as well.
            if turn % 2:
                native_s.append(_time(native, native_calls) / native_calls)
            device_s.append(_time(on_device, device_calls) / device_calls)
            if not turn % 2:
                native_s.append(_time(native, native_calls) / native_calls)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(device_s, native_s, strict=True))
    return Comparison(statistics.median(device_s), statistics.median(native_s), ratio)


def _calls_per_round(work: Work, round_s: float) -> int:
    if isinstance(_clock, Counter):
        for _ in range(COUNTED_CALLS):
            work()
        return COUNTED_CALLS
    calls = 1
    _time(work, calls)  # warm-up: caches, lazy initialization
    # The shortest of three: an interrupted one would give a side few calls a round, which are waited for as long.
    while (elapsed := min(_time(work, calls) for _ in range(3))) < round_s / 2:
        calls *= 2
    return max(1, round(calls * round_s / elapsed))


def _time(work: Work, calls: int) -> float:
    repeats = itertools.repeat(None, calls)
    start = _clock()
    for _ in repeats:
        work()
    torch.accelerator.synchronize()
    return _clock() - start


@contextmanager
def _undisturbed() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
