"""Who has registered code generation for the device with Inductor: its vendor, or we."""

from typing import Any

from torch._inductor.codegen import common

from torch_backend import device_module


def has_own_code_generation(name: str) -> bool:
    """Whether the vendor of the device ``name`` has registered code generation of his own."""
    scheduling = common.get_scheduling_for_device(name)
    return hasattr(device_module, "Scheduling") or scheduling not in (None, host_scheduling)


def host_scheduling(scheduler: Any) -> Any:
    """What Inductor asks about code for the device before the graph becomes one of the CPU's: the CPU's answers."""
    scheduling = common.get_scheduling_for_device("cpu")
    assert scheduling is not None
    return scheduling(scheduler)
