"""Measuring a device, and a second one beside it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

import torch

from torch_conformance import coverage, routes
from torch_conformance.measure import calls, kernels, models
from torch_conformance.measure.report import Measurements, Row
from torch_conformance.measure.timing import Work, alternate
from torch_conformance.routes.pytorch import device_name

PARTS = {"calls": calls.works, "kernels": kernels.works, "models": models.works}
"""By name: what yields the works of a part on a device."""

SMALL = 1 / 512
"""The scale of a quick run: a device that computes on the host takes seconds."""


def measure(
    route: routes.Route,
    *,
    against: str | None = None,
    parts: Sequence[str] = tuple(PARTS),
    quick: bool = False,
    tell: Callable[[Measurements], None] = lambda so_far: None,
) -> Measurements:
    """Measure a device in this process, which it becomes the active device of.

    Args:
        route: to the device.
        against: the torch name of another device of this process, "cpu" or "cuda".
        parts: of :data:`PARTS`.
        quick: small sizes and few rounds.
        tell: is told what there is after each row.

    Raises as the route's ``activate`` does.
    """
    device = routes.activate(route).name
    devices = [device, *([against] if against else [])]
    facts = {
        "torch": torch.__version__,
        "load": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} processors",
        **{name: device_name(name) or name for name in devices},
    }
    rows: list[Row] = []
    found = Measurements(device, against, facts, rows)
    for part in parts:
        for row in _rows(part, devices, quick):
            rows.append(row)
            tell(found)
    return found


def _rows(part: str, devices: Sequence[str], quick: bool) -> Iterator[Row]:
    scale, rounds = (SMALL, 5) if quick else (1.0, 9)
    for together in zip_longest(*(_safely(PARTS[part](device, scale)) for device in devices)):
        there = {device: work for device, work in zip(devices, together, strict=True) if work is not None}
        name, count, _ = next(iter(there.values()))
        times, errors = alternate(
            {device: work for device, (_, _, work) in there.items()},
            rounds=rounds,
            round_seconds=0.02 if quick else 0.1,
            waits=part != "calls",
        )
        served = _served(there[devices[0]][2]) if part == "models" and devices[0] in times else {}
        yield Row(part, name, times, errors, count, served)


def _safely(works: Iterator[tuple[str, int, Work]]) -> Iterator[tuple[str, int, Work]]:
    """What can be made ready on the device."""
    try:
        yield from works
    except Exception as error:
        text = f"{type(error).__name__}: {error}"

        def fail() -> None:
            raise RuntimeError(text)

        yield "what follows cannot be made ready", 0, fail


def _served(step: Work) -> dict[str, int]:
    with routes.of_this_process().calls().noted() as seen:
        step()
    counts = Counter(coverage.kind_of(call.source) for call in seen.calls)
    return {str(kind): count for kind, count in counts.most_common()}
