"""The table "kernels.1" of a device written in Python."""

import ctypes
from typing import Any

from torch_backend.abi.constants import LogLevel
from torch_backend.abi.structs import tb_kernel, tb_kernel_table
from torch_backend.abi.table import type_of
from torch_backend.python_device.device import PythonDevice
from torch_backend.python_device.errors import text_of
from torch_backend.python_device.handles import LiveHandles
from torch_backend.python_device.host import Host
from torch_backend.python_device.kernels import Kernel


class KernelTable:
    """The listed kernels, and those that were found by name; all of them stay where they are.

    Attributes:
        table: the tb_kernel_table.
    """

    def __init__(self, device: PythonDevice, handles: LiveHandles, host: Host) -> None:
        """Take the kernels of ``device``."""
        self._device = device
        self._handles = handles
        self._host = host
        self._listed = [_kernel(kernel).to_c(op, handles, host) for op, kernel in device.kernels.items()]
        self._found: dict[bytes, tb_kernel | None] = {}
        self._pointers = (ctypes.c_void_p * max(1, len(self._listed)))(*map(ctypes.addressof, self._listed))
        self.table = tb_kernel_table(
            struct_size=ctypes.sizeof(tb_kernel_table),
            kernels=ctypes.addressof(self._pointers) if self._listed else None,
            num_kernels=len(self._listed),
        )
        if device.offers("kernel_find"):
            self.table.kernel_find = type_of(tb_kernel_table, "kernel_find")(self._find)

    @staticmethod
    def is_offered(device: PythonDevice) -> bool:
        """Whether the device has kernels at all."""
        return bool(device.kernels) or device.offers("kernel_find")

    def _find(self, op: bytes) -> int | None:
        try:
            if op not in self._found:
                kernel = self._device.kernel_find(op.decode())
                self._found[op] = (
                    None if kernel is None else _kernel(kernel).to_c(op.decode(), self._handles, self._host)
                )
            found = self._found[op]
            return None if found is None else ctypes.addressof(found)
        except BaseException as error:  # the answer has no place for a reason
            self._found[op] = None
            self._host.log(LogLevel.ERROR, f"kernel_find({op.decode(errors='replace')!r}): {text_of(error)}")
            return None


def _kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if not callable(kernel):
        raise TypeError(f"{kernel!r} is no kernel; expected a function or a Kernel")
    return Kernel(kernel)
