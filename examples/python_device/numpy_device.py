"""A device in Python: its memory is numpy arrays, and it computes addition and matrix products itself."""

import numpy

from torch_backend.python_device import (
    CopyKind,
    DeviceProperties,
    KernelContext,
    MemoryKind,
    OutOfMemory,
    PythonDevice,
    TensorView,
    copy_host_memory,
)

ALIGNMENT = 64


def add(context: KernelContext, a: TensorView, b: TensorView, alpha: float, out: TensorView) -> None:
    out.numpy()[...] = a.numpy() + alpha * b.numpy()


def mm(context: KernelContext, a: TensorView, b: TensorView, out: TensorView) -> None:
    numpy.matmul(a.numpy(), b.numpy(), out=out.numpy())


class NumpyDevice(PythonDevice):
    name = "arrays"
    vendor = "torch_backend"
    version = "1.0"
    option_keys = ("devices",)
    kernels = {"aten::add.out": add, "aten::mm.out": mm}

    def __init__(self) -> None:
        self.devices = int(self.option("devices") or 1)
        self.blocks: dict[int, numpy.ndarray] = {}

    def device_count(self) -> int:
        return self.devices

    def device_properties(self, device: int) -> DeviceProperties:
        return DeviceProperties(name="NumPy arrays", total_memory_bytes=4 << 30)

    def memory_allocate(self, device: int, kind: MemoryKind, size_bytes: int, stream: None) -> int:
        if kind != MemoryKind.DEVICE:
            raise NotImplementedError(f"no memory of kind {kind.name}")
        if size_bytes > 4 << 30:
            raise OutOfMemory(f"no room for {size_bytes} bytes")
        block = numpy.empty(size_bytes + ALIGNMENT, numpy.uint8)
        address = -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.blocks[address] = block
        return address

    def memory_free(self, device: int, kind: MemoryKind, address: int, size_bytes: int, stream: None) -> None:
        del self.blocks[address]

    def memory_copy(self, dst_device, dst, src_device, src, size_bytes, kind: CopyKind, stream) -> None:
        if kind == CopyKind.PEER:
            raise NotImplementedError("copies between devices go through the host")
        copy_host_memory(dst, src, size_bytes)
