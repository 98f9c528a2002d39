"""What NVML knows of a GPU, as functions of ``torch.xcuda``. It comes with NVIDIA's driver; the first one opens it."""

import ctypes
import functools
import os
from typing import Any

from torch_backend.devices import activation, loading
from torch_backend.devices.vendor_functions import device_function

_LIBRARY = "libnvidia-ml.so.1"
_FUNCTIONS = (
    "nvmlInit_v2",
    "nvmlErrorString",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetComputeRunningProcesses_v3",
)
_INSUFFICIENT_SIZE = 7
_TEMPERATURE_GPU = 0
_CLOCK_SM = 1
_UNKNOWN_BYTES = 2**64 - 1


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def _folders() -> list[str]:
    plugin = activation.active()
    given = loading.options_of(plugin).get("library_path") if plugin else None
    text = str(given or os.environ.get("TORCH_BACKEND_XCUDA_LIBRARY_PATH", ""))
    return [folder for folder in text.split(":") if folder]


@functools.cache
def _nvml() -> ctypes.CDLL:
    """NVML, started. Raises RuntimeError with what is wrong."""
    places = [path for folder in _folders() if os.path.exists(path := os.path.join(folder, _LIBRARY))]
    try:
        library = ctypes.CDLL([*places, _LIBRARY][0])
    except OSError as error:
        raise RuntimeError(
            f"NVML, which says what a GPU is doing, is not installed ({error}). It comes with NVIDIA's driver, and "
            "nvidia-smi does not work without it either."
        ) from None
    for name in _FUNCTIONS:
        if not hasattr(library, name):
            raise RuntimeError(f"NVML is too old: {_LIBRARY} has no {name}. xcuda needs driver 525 or later.")
    library.nvmlErrorString.restype = ctypes.c_char_p
    _check(library, "nvmlInit_v2", library.nvmlInit_v2())
    return library


def _check(library: ctypes.CDLL, name: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{name}: {library.nvmlErrorString(error).decode()} ({error})")


def _gpu(device: Any) -> ctypes.c_void_p:
    """NVML's handle. It counts GPUs that CUDA_VISIBLE_DEVICES hides, so they are known by what is theirs alone."""
    from torch_backend import device_module

    handle = ctypes.c_void_p()
    uuid = device_module.get_device_properties(device).uuid
    _ask("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(handle))
    return handle


def _ask(name: str, *arguments: Any) -> None:
    library = _nvml()
    _check(library, name, getattr(library, name)(*arguments))


def _number(name: str, device: Any, *which: int) -> int:
    value = ctypes.c_uint()
    _ask(name, _gpu(device), *which, ctypes.byref(value))
    return value.value


def _rates(device: Any) -> _Utilization:
    rates = _Utilization()
    _ask("nvmlDeviceGetUtilizationRates", _gpu(device), ctypes.byref(rates))
    return rates


@device_function("xcuda")
def utilization(device: Any = None) -> int:
    """The percentage of time, over NVML's last sample, with a kernel at work."""
    return int(_rates(device).gpu)


@device_function("xcuda")
def memory_usage(device: Any = None) -> int:
    """The percentage of time, over NVML's last sample, with accesses to memory."""
    return int(_rates(device).memory)


@device_function("xcuda")
def temperature(device: Any = None) -> int:
    """Degrees Celsius of the chip."""
    return _number("nvmlDeviceGetTemperature", device, _TEMPERATURE_GPU)


@device_function("xcuda")
def power_draw(device: Any = None) -> int:
    """Milliwatts, memory included."""
    return _number("nvmlDeviceGetPowerUsage", device)


@device_function("xcuda")
def clock_rate(device: Any = None) -> int:
    """Megahertz of the multiprocessors."""
    return _number("nvmlDeviceGetClockInfo", device, _CLOCK_SM)


@device_function("xcuda")
def list_gpu_processes(device: Any = None) -> str:
    """The processes that use the GPU, a line for each, with the memory that they have."""
    from torch_backend.device_module._utils import _existing_device_index

    lines = [f"GPU:{_existing_device_index(device)}"]
    for process in _processes(_gpu(device)):
        used = "?" if process.used_bytes == _UNKNOWN_BYTES else f"{process.used_bytes / 2**20:.3f}"
        lines.append(f"process {process.pid:>10d} uses {used:>12} MB GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])


def _processes(gpu: ctypes.c_void_p) -> list[_Process]:
    """There may be more when they are asked for than when they are counted."""
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    room, error = 0, _INSUFFICIENT_SIZE
    while error == _INSUFFICIENT_SIZE:
        count = ctypes.c_uint(room)
        processes = (_Process * room)()
        error = getattr(_nvml(), name)(gpu, ctypes.byref(count), processes)
        room = count.value + 4
    _check(_nvml(), name, error)
    return list(processes[: count.value])
