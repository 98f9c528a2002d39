"""The device library: every slot is a question to the daemon of the device."""

from collections.abc import Sequence
from typing import Any

from torch_backend.python_device import (
    Capability,
    CopyKind,
    DeviceProperties,
    Kernel,
    KernelContext,
    MemoryKind,
    PointerInfo,
    TensorView,
    host_memory,
)

from .addresses import reserve
from .driver import Driver
from .options import KEYS, Options
from .pinned import PinnedMemory
from .stream_slots import DEFAULT_STREAM, STREAM_CAPABILITIES, StreamSlots
from .wire import TensorAt

_UNDEFINED = ((0,), "float32")
"""What is returned for a result that the operator leaves undefined, and that nobody has asked for."""


class OpenReg(StreamSlots):
    """Devices in processes of their own. Addresses are reserved here, and lead to nothing."""

    name = "openreg"
    vendor = "torch_backend"
    version = "1.0"
    option_keys = KEYS

    def __init__(self) -> None:
        """Read the options; nothing is started."""
        self.options = Options.read(self.option)
        self._bases: list[int] = []
        self._pinned = PinnedMemory(self.options.memory_bytes) if self.options.streams else None
        pinned_file = self._pinned.file_descriptor if self._pinned else None
        self.drivers = [
            Driver(f"{self.name}:{index}", self.options.memory_bytes, pinned_file)
            for index in range(self.options.devices)
        ]

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
            capabilities=STREAM_CAPABILITIES if self.options.streams else Capability(0),
            capability=(1, 0),
        )

    # ---- memory ----

    def memory_allocate(self, device: int, kind: MemoryKind, size_bytes: int, stream: int | None) -> int:
        if kind == MemoryKind.HOST and self._pinned is not None:
            return self._pinned.allocate(size_bytes)
        if kind != MemoryKind.DEVICE:
            raise NotImplementedError(f"openreg has no memory of kind {kind.name}")
        offset: int = self.drivers[device].request("allocate", size_bytes)
        return self._bases[device] + offset

    def memory_free(self, device: int, kind: MemoryKind, address: int, size_bytes: int, stream: int | None) -> None:
        if kind == MemoryKind.HOST and self._pinned is not None:
            self._pinned.free(address, size_bytes)
        else:
            self.drivers[device].request("release", self._offset(device, address), size_bytes)

    def memory_copy(
        self,
        dst_device: int,
        dst: int,
        src_device: int,
        src: int,
        size_bytes: int,
        kind: CopyKind,
        stream: int | None,
    ) -> None:
        if kind == CopyKind.HOST_TO_DEVICE:
            self._write(dst_device, self._offset(dst_device, dst), src, size_bytes, stream)
        elif kind == CopyKind.DEVICE_TO_HOST:
            self._read(src_device, dst, self._offset(src_device, src), size_bytes, stream)
        elif kind == CopyKind.DEVICE_TO_DEVICE:
            offsets = self._offset(dst_device, dst), self._offset(src_device, src)
            self._enqueue(dst_device, stream, "copy", *offsets, size_bytes)
        else:
            raise NotImplementedError("openreg copies between devices through the host")

    def _write(self, device: int, offset: int, host: int, size_bytes: int, stream: int | None) -> None:
        pinned = self._pinned.offset(host) if self._pinned else None
        if pinned is not None:
            self._enqueue(device, stream, "write_pinned", offset, pinned, size_bytes)
        else:
            if self._pinned:  # what is on the stream, a host function for one, may yet write the bytes that are sent
                self.drivers[device].request("settle", stream or DEFAULT_STREAM)
            self._enqueue(device, stream, "write", offset, send=host_memory(host, size_bytes))

    def _read(self, device: int, host: int, offset: int, size_bytes: int, stream: int | None) -> None:
        pinned = self._pinned.offset(host) if self._pinned else None
        if pinned is not None:
            self._enqueue(device, stream, "read_pinned", pinned, offset, size_bytes)
        else:
            view = host_memory(host, size_bytes)
            self.drivers[device].request("read", stream or DEFAULT_STREAM, offset, size_bytes, receive=view)

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
        stream: int | None,
    ) -> None:
        if kind != CopyKind.DEVICE_TO_DEVICE:
            raise NotImplementedError("openreg copies rows to and from the host one by one")
        offsets = self._offset(device, dst), self._offset(device, src)
        how = offsets[0], dst_pitch_bytes, offsets[1], src_pitch_bytes, width_bytes, height
        self._enqueue(device, stream, "copy_rows", *how)

    def memory_fill(self, device: int, dst: int, pattern: bytes, size_bytes: int, stream: int | None) -> None:
        self._enqueue(device, stream, "fill", self._offset(device, dst), pattern, size_bytes)

    def memory_info(self, device: int) -> tuple[int, int]:
        free, total = self.drivers[device].request("info")
        return free, total

    def memory_query(self, address: int) -> PointerInfo | None:
        for device, base in enumerate(self._bases):
            offset = address - base
            if 0 <= offset < self.options.memory_bytes:
                found = self.drivers[device].request("find", offset)
                return PointerInfo(MemoryKind.DEVICE, device, base + found[0], found[1]) if found else None
        if self._pinned is not None and (pinned := self._pinned.find(address)):
            return PointerInfo(MemoryKind.HOST, None, *pinned)
        return None

    def _offset(self, device: int, address: int) -> int:
        offset = address - self._bases[device]
        if not 0 <= offset < self.options.memory_bytes:
            raise ValueError(f"{address:#x} is no address of {self.name}:{device}")
        return offset

    # ---- operators ----

    def kernel_find(self, op: str) -> Kernel | None:
        from .operators import Way, may_refuse, way_of  # these need torch, which is there when they are looked for

        way = way_of(op)
        if way is None:
            return None
        if way is Way.RETURNS:
            return Kernel(lambda context, *arguments: self._compute(op, context, arguments), allocates_output=True)
        work = "operator" if way is Way.WRITES else "fill_outputs"
        request = "run" if may_refuse(op) else "enqueue"
        return Kernel(lambda context, *arguments: self._kernel(request, work, op, context, arguments))

    def _kernel(self, request: str, work: str, op: str, context: KernelContext, arguments: Sequence[Any]) -> None:
        described = self._described(context.device, arguments)
        self.drivers[context.device].request(request, context.stream or DEFAULT_STREAM, work, op, described)

    def _compute(self, op: str, context: KernelContext, arguments: Sequence[Any]) -> None:
        """Results are there before their memory: the daemon tells their shapes, and then stores them."""
        device, stream = context.device, context.stream or DEFAULT_STREAM
        described = self._described(device, arguments)
        number, results = self.drivers[device].request("run", stream, "compute", op, described)
        outputs: list[TensorView] = []
        try:
            for index, result in enumerate(results):
                outputs.append(context.alloc_output(index, *(result or _UNDEFINED)))
        except BaseException:
            self._enqueue(device, stream, "store", number, ())
            raise
        self._enqueue(device, stream, "store", number, self._described(device, outputs))

    def _enqueue(self, device: int, stream: int | None, work: str, *arguments: Any, send: Any = None) -> None:
        self.drivers[device].request("enqueue", stream or DEFAULT_STREAM, work, *arguments, send=send)

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
