"""What a device library says about itself and its devices, as JSON's types."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_backend._C import DeviceProperties, Plugin


def of_plugin(plugin: "Plugin") -> dict[str, Any]:
    """The library and each of its devices. Starts the driver."""
    return {
        "name": plugin.name,
        "vendor": plugin.vendor,
        "version": plugin.version,
        "abi": "{}.{}".format(*plugin.abi_version),
        "path": plugin.path,
        "tables": list(plugin.tables),
        "devices": [of_device(plugin.device_properties(index)) for index in range(plugin.device_count())],
    }


def of_device(properties: "DeviceProperties") -> dict[str, Any]:
    """One device."""
    return {
        "name": properties.name,
        "arch": properties.arch,
        "capability": f"{properties.major}.{properties.minor}",
        "total_memory_bytes": properties.total_memory,
        "multi_processor_count": properties.multi_processor_count,
        "warp_size": properties.warp_size,
        "stream_priority_range": list(properties.stream_priority_range),
        "numa_node": properties.numa_node,
        "uuid": properties.uuid,
        "allocation_granularity_bytes": properties.allocation_granularity,
        "allocation_alignment_bytes": properties.allocation_alignment,
        "capabilities": sorted(properties.capabilities),
        "dtypes": sorted(str(dtype).removeprefix("torch.") for dtype in properties.dtypes),
    }
