"""As PyTorch's profiler and dispatch table tell, of any device: who has a kernel, and what the CPU served.

The dispatch table knows operators that have no kernel of the device and go to its fallback. A device may call a
fallback in kernels, too: PyTorch's ``cpu_fallback`` copies arguments with ``aten::_to_cpu``, so a call with such a
child was served by the CPU; events of a fallback of its own are named by the device's profile. What it does not name is
not seen, and such calls count as native: the number of fallbacks is a lower bound.

The profiler is :mod:`torch.autograd.profiler_legacy`: a call costs it a tenth of a millisecond, Kineto ten, and devices
without a profiler of their own are in it too.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch.autograd import profiler_legacy

from torch_conformance.sources import Call, Seen

Kind = Literal["kernel", "fallback", "composite"]
"""What the dispatcher has for an operator: a kernel of the device, its fallback, or one that calls other operators."""

TO_CPU = "aten::_to_cpu"
"""What ATen/native/CPUFallback.cpp calls first."""


class Profiled:
    """The calls as PyTorch has seen them.

    Args:
        device: its torch name.
        markers: more events that only a fallback of this device has.
    """

    def __init__(self, device: str, markers: Sequence[str] = ()) -> None:  # noqa: D107  # the class says it
        self._markers = frozenset({TO_CPU, *markers})
        self._key = dispatch_key(device)

    @contextmanager
    def noted(self) -> Iterator[Seen]:
        """Note the calls of a block of code."""
        seen = Seen()
        profile: Any = profiler_legacy.profile()  # type: ignore[no-untyped-call]
        try:
            with profile:
                yield seen
        finally:
            events: Any = profile.function_events or ()
            costs: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
            for event in events:
                if event.cpu_parent is None:
                    self._walk(event, seen, costs)
            seen.fallbacks = {op: (calls, copied, seconds) for op, (calls, copied, seconds) in costs.items()}

    def _walk(self, event: Any, seen: Seen, costs: dict[str, list[float]]) -> None:
        children: Any = event.cpu_children
        kind = kind_of(event.name, self._key)
        if kind == "fallback" or any(child.name in self._markers for child in event.cpu_children):
            seen.calls.append(Call(event.name, "fallback"))
            cost = costs[event.name]
            cost[0] += 1
            cost[2] += event.cpu_time_total / 1e6
            children = ()
        elif kind == "kernel":
            seen.calls.append(Call(event.name, "native"))
            children = ()  # what a kernel calls is its own business
        for child in children:
            self._walk(child, seen, costs)


def dispatch_key(device: str) -> str:
    """The key that kernels of a device are registered for: "CUDA", "PrivateUse1"."""
    if device == torch._C._get_privateuse1_backend_name():
        return "PrivateUse1"
    return {"cpu": "CPU", "meta": "Meta"}.get(device, device.upper())


@cache
def _by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for overload in torch._C._dispatch_get_all_op_names():
        found[overload.partition(".")[0]].append(overload)
    return found


@cache
def kind_of(name: str, key: str) -> Kind:
    """What the dispatcher calls for this key: the profiler names an operator, and this is of any of its overloads."""
    kinds = {_kind_of_overload(overload, key) for overload in _by_name().get(name, ()) if not _returns_in_out(overload)}
    return next((kind for kind in get_args(Kind) if kind in kinds), "composite")


def _returns_in_out(overload: str) -> bool:
    return overload.endswith(("out", "_out"))


def _kind_of_overload(overload: str, key: str) -> Kind:
    table: str = torch._C._dispatch_dump_table(overload)
    line = next((line for line in table.splitlines() if line.startswith(f"{key}: ")), "")
    if line.endswith("[kernel]"):
        return "kernel"
    return "fallback" if line.endswith("[backend fallback]") and "fallthrough" not in line else "composite"
