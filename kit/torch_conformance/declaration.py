"""What a device says it can do: the one ground on which the kit leaves a test out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_backend._C import Plugin


@dataclass(frozen=True)
class Declaration:
    """What a device library declares.

    Attributes:
        name: the torch device name.
        device_count: number of devices.
        capabilities: names of the TB_CAP_ flags that every device has, without the prefix.
        dtypes: the dtypes that every device stores and computes in, as torch names them without "torch.".
        tables: optional tables, "kernels.1".
        slots: the slots of tb_core_table that are set. Known only to tests of the bare library; else None.
    """

    name: str
    device_count: int
    capabilities: frozenset[str]
    dtypes: frozenset[str]
    tables: frozenset[str]
    slots: frozenset[str] | None = None

    def lacks(self, kind: str, value: object) -> str | None:
        """Why a test that needs ``value`` is left out, as a readable reason; None if the device has it.

        ``kind`` is the name of a function of :mod:`torch_conformance.needs`.
        """
        match kind, value:
            case "capability", str():
                return None if value in self.capabilities else f"the device does not declare TB_CAP_{value}"
            case "devices", int():
                return None if self.device_count >= value else f"needs {value} devices, there is {self.device_count}"
            case "dtype", str():
                return None if value in self.dtypes else f"the device does not declare the dtype {value}"
            case "table", str():
                return None if value in self.tables else f"the device library has no table {value}"
            case "slot", str():
                if self.slots is None:
                    raise ValueError("Only tests of the bare device library can need a slot.")
                return None if value in self.slots else f"the device library leaves the slot {value} unset"
            case "feature", str():
                return None if _FEATURES[value](self.name) else f"torch_backend does not offer {value} on this device"
        raise ValueError(f"A test cannot need {kind} {value!r}.")


def of_plugin(plugin: "Plugin") -> Declaration:
    """What the active device declares. Starts its driver."""
    devices = [plugin.device_properties(index) for index in range(plugin.device_count())]
    return Declaration(
        name=plugin.name,
        device_count=len(devices),
        capabilities=frozenset.intersection(*(device.capabilities for device in devices)),
        dtypes=frozenset.intersection(
            *(frozenset(str(dtype).removeprefix("torch.") for dtype in device.dtypes) for device in devices)
        ),
        tables=frozenset(plugin.tables),
    )


def _has_process_groups(name: str) -> bool:
    import torch.distributed as dist

    return dist.is_available() and name in dist.Backend.default_device_backend_map


def _has_dynamo_interface(name: str) -> bool:
    # Takes a second, so only where a test asks.
    from torch._dynamo.device_interface import get_interface_for_device

    try:
        get_interface_for_device(name)
    except NotImplementedError:
        return False
    return True


def _has_profiler(_: str) -> bool:
    import torch

    return torch._C._autograd.kineto_available()


_FEATURES: dict[str, Callable[[str], bool]] = {
    "distributed": _has_process_groups,
    "compile": _has_dynamo_interface,
    "profiler": _has_profiler,
}
"""What tells whether PyTorch can use a part of itself on the active device."""
