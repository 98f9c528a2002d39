"""The device's functions, under the names by which PyTorch's compiler calls them for every device."""

from typing import Any

import torch
from torch._dynamo import device_interface, exc
from torch.types import Device

from torch_backend import device_module, triton
from torch_backend.device_module._utils import _get_device_index
from torch_backend.device_module.devices import _DeviceProperties, _exchange_device, _maybe_exchange_device
from torch_backend.device_module.streams import _set_stream_by_id

_worker_device: int | None = None
_properties: list[_DeviceProperties] = []


class Worker:
    """What processes that compile ask; they cannot use the device, so they get what was noted before they started."""

    @staticmethod
    def set_device(device: int) -> None:
        """Choose the device that is meant where none is named."""
        global _worker_device
        _worker_device = device

    @staticmethod
    def current_device() -> int:
        """The device that :meth:`set_device` chose, else the calling thread's."""
        return device_module.current_device() if _worker_device is None else _worker_device

    @staticmethod
    def get_device_properties(device: Device = None) -> _DeviceProperties:
        """What ``device`` is; None is the current one. The first call asks the driver about all devices."""
        if not _properties:
            _properties.extend(map(device_module.get_device_properties, range(device_module.device_count())))
        return _properties[Worker.current_device() if device is None else _get_device_index(device, optional=True)]


def get_raw_stream(device_idx: int) -> int:
    """The device library's handle of the calling thread's stream on a device."""
    stream: Any = device_module.current_stream(device_idx)  # torch's type stubs lack the attribute
    handle: int = stream.native_handle
    return handle


class BackendInterface(device_interface.DeviceInterface):
    """``torch.<name>`` as the compiler's DeviceInterface.

    Of what later versions of torch ask besides, the answers that DeviceInterface gives are right: it has streams.
    """

    device = device_module.device
    Event = device_module.Event
    Stream = device_module.Stream
    Worker = Worker  # type: ignore[assignment]

    current_device = staticmethod(device_module.current_device)
    set_device = staticmethod(device_module.set_device)
    exchange_device = staticmethod(_exchange_device)
    maybe_exchange_device = staticmethod(_maybe_exchange_device)
    device_count = staticmethod(device_module.device_count)
    stream = staticmethod(device_module.stream)
    current_stream = staticmethod(device_module.current_stream)
    set_stream = staticmethod(device_module.set_stream)
    _set_stream_by_id = staticmethod(_set_stream_by_id)
    synchronize = staticmethod(device_module.synchronize)
    get_device_properties = staticmethod(device_module.get_device_properties)
    is_bf16_supported = staticmethod(device_module.is_bf16_supported)
    get_raw_stream = staticmethod(get_raw_stream)
    memory_allocated = staticmethod(device_module.memory_allocated)

    # A function, not a value: tests replace torch.<name>.is_available.
    @staticmethod
    def is_available() -> bool:
        """Whether there is a device."""
        return device_module.is_available()

    @staticmethod
    def get_compute_capability(device: Device = None) -> int | str:
        """The architecture that kernels are built for: its name, or if it has none, its version."""
        properties = device_module.get_device_properties(device)
        return properties.arch or properties.major * 10 + properties.minor

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        """Whether the current device declares ``dtype``. There is no emulation."""
        return dtype in device_module.get_device_properties().dtypes

    @staticmethod
    def is_triton_capable(device: Device = None) -> bool:
        """Whether the vendor has said that Triton serves the device."""
        return triton.is_declared(_name())

    @staticmethod
    def is_gpu() -> bool:
        """In the sense of Inductor, which expects Triton of GPUs. Asked from torch 2.15 on."""
        return triton.is_declared(_name()) and triton.problem(_name()) is None

    @classmethod
    def raise_if_triton_unavailable(cls, device: Device = None) -> None:
        """Raises RuntimeError if Triton does not serve the device, which says why."""
        if reason := triton.problem(_name()):
            kind = getattr(exc, "TritonUnavailableError", RuntimeError)  # from torch 2.14 on, which catches this one
            raise kind(f"Triton generates no code for {_name()}. {reason}")


def _name() -> str:
    return torch._C._get_privateuse1_backend_name()


def register(name: str) -> None:
    """Make the interface known for the device ``name`` and for each of its devices by index."""
    interface: Any = BackendInterface
    device_interface.register_interface_for_device(name, interface)
    for index in range(device_module.device_count()):
        device_interface.register_interface_for_device(f"{name}:{index}", interface)
