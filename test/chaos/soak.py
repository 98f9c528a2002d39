"""Mixed work of many threads on several asynchronous devices with delays, every value checked."""

import collections
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field

import torch
from resident import growth_per_step, resident_bytes
from steps import STEPS, Place, compile_layers, take


@dataclass
class Result:
    """What happened until the time was over."""

    steps: collections.Counter[str] = field(default_factory=collections.Counter)
    errors: list[str] = field(default_factory=list)
    resident: list[tuple[int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def total(self) -> int:
        return self.steps.total()


@dataclass(frozen=True)
class Limit:
    """Whichever is reached first; a hundred errors are enough too."""

    end: float  # on time.monotonic()'s clock
    steps: int

    def reached(self, result: Result) -> bool:
        return time.monotonic() > self.end or result.total() >= self.steps or len(result.errors) >= 100


def work(name: str, thread: int, limit: Limit, result: Result) -> None:
    place = Place(name, seed=thread)
    while not limit.reached(result):
        step = place.random.choice(STEPS)
        try:
            take(place, step)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            with result.lock:
                result.errors.append(f"{step.__name__}: {type(error).__name__}: {error} ({last.name}:{last.lineno})")
        with result.lock:
            result.steps[step.__name__] += 1


def soak(name: str, limit: Limit, num_threads: int) -> Result:
    """Work up to the limit. The device is active; the calling thread only looks at the memory."""
    compile_layers(name)
    result = Result()
    threads = [threading.Thread(target=work, args=(name, i, limit, result)) for i in range(num_threads)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[-1].join(timeout=2.0)
        result.resident.append((result.total(), resident_bytes()))
    module = getattr(torch, name)
    for device in range(module.device_count()):
        module.synchronize(device)
    return result


def report(result: Result, name: str) -> bool:
    """Print it; whether all was right."""
    module = getattr(torch, name)
    left = [module.memory_allocated(device) for device in range(module.device_count())]
    growth = growth_per_step(result.resident) if len(result.resident) > 4 else 0.0
    print(f"{result.total()} steps:", ", ".join(f"{step} {count}" for step, count in sorted(result.steps.items())))
    print(f"device memory still allocated: {sum(left)} bytes")
    print(f"resident: {result.resident[-1][1] / 2**20:.0f} MiB, {growth:.0f} bytes per step in the later half")
    for error in result.errors[:20]:
        print("ERROR", error, file=sys.stderr)
    print(f"{len(result.errors)} errors")
    return not result.errors and sum(left) == 0
