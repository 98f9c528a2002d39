"""Who has registered code generation for the device with Inductor: its vendor, or we."""

from typing import Any

from torch._inductor.codegen import common

from torch_backend import device_module


def has_own_code_generation(name: str) -> bool:
    """Whether the vendor of the device ``name`` has registered code generation of his own."""
    module = getattr(common.get_scheduling_for_device(name), "__module__", None)
    ours = module is None or module.startswith(f"{__package__}.")
    return hasattr(device_module, "Scheduling") or not ours


def generates_for_host(name: str) -> bool:
    """Whether graphs of the device ``name`` become graphs of the CPU."""
    return common.get_scheduling_for_device(name) is HostScheduling


def generates_modules(name: str) -> bool:
    """Whether graphs of the device ``name`` become kernels that it compiles."""
    return getattr(common.get_scheduling_for_device(name), "__module__", "").startswith(f"{__package__}.modules.")


def generates_triton(name: str) -> bool:
    """Whether graphs of the device ``name`` become kernels in Triton."""
    return getattr(common.get_scheduling_for_device(name), "__module__", "") == f"{__package__}.triton_graphs"


class HostScheduling:
    """What Inductor asks about code for the device before the graph becomes one of the CPU's: the CPU's answers."""

    def __new__(cls, scheduler: Any) -> Any:
        """The CPU's; of its own there are no instances. A class, since Inductor asks what it is derived from."""
        scheduling = common.get_scheduling_for_device("cpu")
        assert scheduling is not None
        return scheduling(scheduler)
