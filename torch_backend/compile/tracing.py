"""What the tracer of torch.compile does with the functions of ``torch.<name>``.

Most need nothing: they are Python that it can follow, because they call nothing native while it traces. The rest answer
always the same, or end the graph, which is what most of their namesakes in torch.cuda do.
"""

from collections.abc import Callable
from typing import Any

from torch._dynamo import trace_rules
from torch._dynamo.decorators import assume_constant_result, skip

from torch_backend import device_module
from torch_backend.device_module import _utils, amp, devices, streams

_CONSTANT: tuple[Callable[..., Any], ...] = (
    _utils._device_count,
    amp.get_amp_supported_dtype,
    devices._lazy_init,
    devices._properties_of.__wrapped__,
    devices.can_device_access_peer,
    devices.get_arch_list,
    devices.is_available,
)
"""Functions with one answer per process, which they give while tracing."""

_ENDS_GRAPH: tuple[Callable[..., Any], ...] = (
    devices.device.__enter__,  # in a graph, the choice would be lost for the tensors that are made inside
    devices.device.__exit__,
    devices.init,
    devices.set_device,
    streams.ExternalStream.__new__,
    streams.Stream.priority_range,
    streams.default_stream,
    streams.set_stream,
)
"""Functions that change or ask for what a graph does not hold. They run between two graphs."""

_MODULES_THAT_END_GRAPH = ("memory", "random", "sync_debug")
"""Modules full of such functions."""


def mark_functions() -> None:
    """Tell the tracer. Once per process, when torch._dynamo was imported."""
    for function in _CONSTANT:
        assume_constant_result(function)  # type: ignore[no-untyped-call]
    for function in _ENDS_GRAPH:
        skip(function)
        # What the compiler says about the graph's end.
        setattr(function, "_torchdynamo_disable_msg", "what it asks for or changes is not in the graph")  # noqa: B010
    for module in _MODULES_THAT_END_GRAPH:
        trace_rules.add(f"{device_module.__package__}.{module}")
