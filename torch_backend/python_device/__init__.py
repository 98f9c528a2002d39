"""Devices written in Python: a class fills the same table of C functions that a device library in C does.

For prototypes, and for devices in another process or on the network. Derive from :class:`PythonDevice` and give the
class to :func:`torch_backend.activate`, or name it "module:Class" wherever a device is named::

    TORCH_BACKEND=acme.device:Acme python train.py
    torch-backend check acme.device:Acme

This package imports neither torch nor numpy.
"""

from torch_backend.abi.constants import Capability, CopyKind, EventFlag, LogLevel, MapAccess, MemoryKind
from torch_backend.python_device.device import PythonDevice
from torch_backend.python_device.errors import DeviceLost, InternalError, NotReady, OutOfMemory
from torch_backend.python_device.kernels import Kernel, KernelContext, Philox, TensorView
from torch_backend.python_device.memory import copy_host_memory, host_memory
from torch_backend.python_device.properties import DeviceProperties, PointerInfo

__all__ = [
    "Capability",
    "CopyKind",
    "DeviceLost",
    "DeviceProperties",
    "EventFlag",
    "InternalError",
    "Kernel",
    "KernelContext",
    "LogLevel",
    "MapAccess",
    "MemoryKind",
    "NotReady",
    "OutOfMemory",
    "Philox",
    "PointerInfo",
    "PythonDevice",
    "TensorView",
    "copy_host_memory",
    "host_memory",
]
