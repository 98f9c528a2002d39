"""The device library: every slot is a question to the daemon of the device."""

from collections.abc import Sequence
from typing import Any

from torch_backend.python_device import (
    CopyKind,
    DeviceProperties,
    Kernel,
    KernelContext,
    MemoryKind,
    PointerInfo,
    PythonDevice,
    TensorView,
    host_memory,
)

from .addresses import reserve
from .driver import Driver
from .options import KEYS, Options
from .wire import TensorAt

_UNDEFINED = ((0,), "float32")
"""What is returned for a result that the operator leaves undefined, and that nobody has asked for."""


class OpenReg(PythonDevice):
    """Devices in processes of their own. Addresses are reserved here, and lead to nothing."""

    name = "openreg"
    vendor = "torch_backend"
    version = "1.0"
    option_keys = KEYS

    def __init__(self) -> None:
        """Read the options; nothing is started."""
        self.options = Options.read(self.option)
        self.drivers = [
            Driver(f"{self.name}:{index}", self.options.memory_bytes) for index in range(self.options.devices)
        ]
        self._bases: list[int] = []

    def initialize(self) -> None:
        """Reserve the addresses; a daemon is started when its device is used."""
        self._bases = [reserve(self.options.memory_bytes) for _ in self.drivers]

    def device_count(self) -> int:
        return self.options.devices

    def device_properties(self, device: int) -> DeviceProperties:
        return DeviceProperties(
            name="OpenReg process",
            arch="aten_cpu",
            total_memory_bytes=self.options.memory_bytes,
            capability=(1, 0),
        )

    # ---- memory ----

    def memory_allocate(self, device: int, kind: MemoryKind, size_bytes: int, stream: None) -> int:
        if kind != MemoryKind.DEVICE:
            raise NotImplementedError(f"openreg has no memory of kind {kind.name}")
        offset: int = self.drivers[device].request("allocate", size_bytes)
        return self._bases[device] + offset

    def memory_free(self, device: int, kind: MemoryKind, address: int, size_bytes: int, stream: None) -> None:
        self.drivers[device].request("release", self._offset(device, address), size_bytes)

    def memory_copy(
        self, dst_device: int, dst: int, src_device: int, src: int, size_bytes: int, kind: CopyKind, stream: None
    ) -> None:
        if kind == CopyKind.HOST_TO_DEVICE:
            offset = self._offset(dst_device, dst)
            self.drivers[dst_device].request("write", offset, size_bytes, send=host_memory(src, size_bytes))
        elif kind == CopyKind.DEVICE_TO_HOST:
            offset = self._offset(src_device, src)
            self.drivers[src_device].request("read", offset, size_bytes, receive=host_memory(dst, size_bytes))
        elif kind == CopyKind.DEVICE_TO_DEVICE:
            offsets = self._offset(dst_device, dst), self._offset(src_device, src)
            self.drivers[dst_device].request("copy", *offsets, size_bytes)
        else:
            raise NotImplementedError("openreg copies between devices through the host")

    def memory_copy_2d(
        self,
        device: int,
        dst: int,
        dst_pitch_bytes: int,
        src: int,
        src_pitch_bytes: int,
        width_bytes: int,
        height: int,
        kind: CopyKind,
        stream: None,
    ) -> None:
        if kind != CopyKind.DEVICE_TO_DEVICE:
            raise NotImplementedError("openreg copies rows to and from the host one by one")
        offsets = self._offset(device, dst), self._offset(device, src)
        self.drivers[device].request(
            "copy_rows", offsets[0], dst_pitch_bytes, offsets[1], src_pitch_bytes, width_bytes, height
        )

    def memory_fill(self, device: int, dst: int, pattern: bytes, size_bytes: int, stream: None) -> None:
        self.drivers[device].request("fill", self._offset(device, dst), pattern, size_bytes)

    def memory_info(self, device: int) -> tuple[int, int]:
        free, total = self.drivers[device].request("info")
        return free, total

    def memory_query(self, address: int) -> PointerInfo | None:
        for device, base in enumerate(self._bases):
            offset = address - base
            if 0 <= offset < self.options.memory_bytes:
                found = self.drivers[device].request("find", offset)
                return PointerInfo(MemoryKind.DEVICE, device, base + found[0], found[1]) if found else None
        return None

    def _offset(self, device: int, address: int) -> int:
        offset = address - self._bases[device]
        if not 0 <= offset < self.options.memory_bytes:
            raise ValueError(f"{address:#x} is no address of {self.name}:{device}")
        return offset

    # ---- operators ----

    def kernel_find(self, op: str) -> Kernel | None:
        from .operators import Way, way_of  # these need torch, which is there when operators are looked for

        way = way_of(op)
        if way is None:
            return None
        if way is Way.WRITES:
            return Kernel(lambda context, *arguments: self._run("run", op, context, arguments))
        if way is Way.FILLS:
            return Kernel(lambda context, *arguments: self._run("fill_outputs", op, context, arguments))
        return Kernel(lambda context, *arguments: self._compute(op, context, arguments), allocates_output=True)

    def _run(self, request: str, op: str, context: KernelContext, arguments: Sequence[Any]) -> None:
        self.drivers[context.device].request(request, op, self._described(context.device, arguments))

    def _compute(self, op: str, context: KernelContext, arguments: Sequence[Any]) -> None:
        """Results are there before their memory: the daemon tells their shapes, and then stores them."""
        driver, described = self.drivers[context.device], self._described(context.device, arguments)
        number, results = driver.request("compute", op, described)
        outputs: list[TensorView] = []
        try:
            for index, result in enumerate(results):
                outputs.append(context.alloc_output(index, *(result or _UNDEFINED)))
        except BaseException:
            driver.request("store", number, ())
            raise
        driver.request("store", number, self._described(context.device, outputs))

    def _described(self, device: int, arguments: Sequence[Any]) -> list[Any]:
        """The arguments as they go over the wire: tensors as metadata."""
        return [self._argument(device, argument) for argument in arguments]

    def _argument(self, device: int, argument: Any) -> Any:
        if isinstance(argument, TensorView):
            offset = self._offset(device, argument.address) if argument.address else 0
            return TensorAt(offset, argument.shape, argument.strides, argument.dtype)
        if isinstance(argument, tuple):
            return self._described(device, argument)
        return argument
