"""Devices: whether there are any, which one is current, what it is; and starting the driver."""

import functools
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.types import Device

from torch_backend import _C
from torch_backend.compat import autocast_dtype
from torch_backend.device_module._utils import (
    _current_device,
    _device_count,
    _device_type,
    _existing_device_index,
    _get_device_index,
)


def is_available() -> bool:
    """Whether a device can be used. Never raises and never starts the driver, so a process may still fork."""
    try:
        return device_count() > 0
    except Exception:
        return False


def device_count() -> int:
    """The number of devices. Does not start the driver."""
    return _device_count()


def is_initialized() -> bool:
    """Whether the driver was started in this process."""
    if torch.compiler.is_dynamo_compiling():
        _lazy_init()
        return True
    return _C.is_initialized() and not _is_in_bad_fork()


def init() -> None:
    """Start the driver. Not needed: the first use of a device does it.

    Raises RuntimeError in a process that was forked after the driver had started.
    """
    _lazy_init()


def _lazy_init() -> None:
    if _is_in_bad_fork():
        name = _device_type()
        raise RuntimeError(
            f"Cannot use {name} in a forked process: its driver was started before the fork and does not survive it. "
            "Start worker processes with the 'spawn' or 'forkserver' method, as "
            f"torch.multiprocessing.set_start_method('spawn') does, or use {name} only after forking."
        )
    if not _C.is_initialized():
        _C.initialize()
        autocast_dtype.choose(_device_type(), _properties_of(0).dtypes)


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had started the driver, and so cannot use the device."""
    return _C.is_in_bad_fork()


def current_device() -> int:
    """The index of the calling thread's current device."""
    return _current_device()


def set_device(device: Device) -> None:
    """Make ``device`` the calling thread's current device. A negative index changes nothing.

    Raises IndexError if there is no such device.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C.set_device(_existing_device_index(index))


def _exchange_device(device: int) -> int:
    """Make ``device`` current and return the one before; a negative index changes nothing."""
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    """Like :func:`_exchange_device`, but without binding the thread to a device that it has not used."""
    return _C.maybe_exchange_device(device)


class device:
    """Context manager: inside it, ``device`` is the calling thread's current device.

    A negative index and None change nothing. Raises IndexError on entry if there is no such device.
    """

    def __init__(self, device: Any) -> None:
        """Remember which device to make current."""
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        """Make the device current."""
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        """Make the device before current again."""
        _C.maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager: inside it, the device of a tensor or storage is current. Objects elsewhere change nothing."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        """Remember the device of ``obj``."""
        super().__init__(obj.get_device() if obj.device.type == _device_type() else -1)


@dataclass(frozen=True)
class _DeviceProperties:
    """What a device is.

    Attributes:
        name: product name.
        type: torch's device type.
        index: torch's device index.
        arch: what kernels are built for; "" if that has no meaning.
        major, minor: version of the architecture.
        total_memory: bytes; 0 if unknown.
        multi_processor_count: number of compute units; 0 if unknown.
        warp_size: lanes that execute together.
        stream_priority_range: lowest and highest; lower numbers are served first.
        numa_node: -1 if unknown.
        uuid: "" if the device has none.
        allocation_granularity, allocation_alignment: bytes; 0 for no preference.
        capabilities: what the device declares, as in ``device.h``: "ASYNC", "HOST_ACCESS", ...
        dtypes: what the device stores and computes in.
    """

    name: str
    type: str
    index: int
    arch: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    stream_priority_range: tuple[int, int]
    numa_node: int
    uuid: str
    allocation_granularity: int
    allocation_alignment: int
    capabilities: frozenset[str]
    dtypes: frozenset[torch.dtype]

    def __repr__(self) -> str:
        """What a person wants to see; the memory in MB."""
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _HIDDEN_IN_REPR}
        shown["total_memory"] = f"{self.total_memory // 2**20}MB" if self.total_memory else "unknown"
        shown["capabilities"] = "|".join(sorted(self.capabilities)) or "none"
        shown["dtypes"] = len(self.dtypes)
        return f"_DeviceProperties({', '.join(f'{key}={value!r}' for key, value in shown.items())})"


_HIDDEN_IN_REPR = {"allocation_granularity", "allocation_alignment", "numa_node"}


def describe_properties(properties: _C.DeviceProperties, device_type: str, index: int) -> _DeviceProperties:
    """A plugin's answer as the value that :func:`get_device_properties` returns."""
    answers = {
        field.name: getattr(properties, field.name)
        for field in fields(_DeviceProperties)
        if field.name not in {"type", "index"}
    }
    return _DeviceProperties(type=device_type, index=index, **answers)


@functools.cache
def _properties_of(index: int) -> _DeviceProperties:
    return describe_properties(_C.device_properties(index), _device_type(), index)


def get_device_properties(device: Device = None) -> _DeviceProperties:
    """What ``device`` is; None is the current one. Starts the driver. Raises IndexError if there is no such device."""
    _lazy_init()
    return _properties_of(_existing_device_index(device))


def get_device_name(device: Device = None) -> str:
    """The product name of ``device``. Starts the driver."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Major and minor version of the architecture of ``device``. Starts the driver."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """The architectures of the devices here, without repetition; empty if they name none. Starts the driver."""
    if not is_available():
        return []
    return sorted({get_device_properties(index).arch for index in range(device_count())} - {""})


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether kernels of ``device`` can read and write the memory of ``peer_device`` directly. Starts the driver."""
    _lazy_init()
    index, peer = _existing_device_index(device), _existing_device_index(peer_device)
    return _C.can_access_peer(index, peer)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device declares bfloat16. There is no emulation, so the argument changes nothing."""
    return is_available() and torch.bfloat16 in get_device_properties().dtypes


def synchronize(device: Device = None) -> None:
    """Wait until everything enqueued on ``device`` is complete. Raises IndexError if there is no such device."""
    if torch.compiler.is_dynamo_compiling():
        torch.accelerator.synchronize(_existing_device_index(device))
        return
    _lazy_init()
    _C.synchronize(_existing_device_index(device))
