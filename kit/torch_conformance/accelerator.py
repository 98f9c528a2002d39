"""What PyTorch has for every accelerator, under the names that ``torch.<name>`` has for it.

A device need not bring ``torch.acme.Stream``: with ``torch.Stream("acme")`` PyTorch documents the same thing.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

_ALIKE = (
    "current_stream",
    "device_count",
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "synchronize",
)
"""What torch.accelerator calls as torch.cuda, or its device modules, do."""

_OTHERWISE = {
    "current_device": "current_device_index",
    "device": "device_index",
    "mem_get_info": "get_memory_info",
    "set_device": "set_device_index",
}
"""What torch.accelerator has by another name."""


def is_same_stream(one: Any, other: Any) -> bool:
    """Whether both are one stream, be it as torch.Stream or as ``torch.<name>.Stream``."""
    return (one.device, one.stream_id) == (other.device, other.stream_id)


def equivalent(device: str, member: str) -> Any:
    """What does for this accelerator as ``torch.<device>.<member>`` would; None if PyTorch has nothing."""
    import torch

    if torch.accelerator.current_accelerator() != torch.device(device):
        return None
    made: dict[str, Any] = {
        "Event": partial(torch.Event, device),
        "Stream": partial(_new_stream, device),
        "stream": _chosen,
        "set_stream": _choose,
        "Graph": _graph_of(device),
        "graph": partial(_captured, device),
    }
    name = member if member in _ALIKE else _OTHERWISE.get(member, "")
    return made.get(member) or getattr(torch.accelerator, name, None)


def _graph_of(device: str) -> Any:
    """torch.cuda.CUDAGraph, torch.xpu.XPUGraph, which torch.cuda.graph and torch.xpu.graph take, or that of all."""
    import torch

    own = getattr(getattr(torch, device, None), f"{device.upper()}Graph", None)
    return own or getattr(torch.accelerator, "Graph", None)


def _new_stream(device: str, index: int | None = None, priority: int = 0) -> Any:
    import torch

    return torch.Stream(device if index is None else f"{device}:{index}", priority=priority)


def _chosen(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """None chooses no other one, as with torch.cuda.stream."""
    return contextlib.nullcontext() if stream is None else stream


def _choose(stream: Any) -> None:
    import torch

    if stream is not None:
        torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def _captured(device: str, graph: Any) -> Iterator[None]:
    with _new_stream(device), graph:
        yield
