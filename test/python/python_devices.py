"""Devices in Python for the tests: named as "python_devices:Plain" wherever a device is named."""

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy

from torch_backend.python_device import (
    Capability,
    CopyKind,
    DeviceLost,
    DeviceProperties,
    Kernel,
    KernelContext,
    MemoryKind,
    NotReady,
    OutOfMemory,
    Philox,
    PythonDevice,
    TensorView,
    copy_host_memory,
    host_memory,
)

ALIGNMENT = 64


class Plain(PythonDevice):
    """The five methods; memory is this process's."""

    name = "plain"
    vendor = "tests"
    version = "2.1"
    option_keys = ("devices", "memory")

    def __init__(self) -> None:
        self.devices = int(self.option("devices") or 1)
        self.limit = int(self.option("memory") or 1 << 30)
        self.used = 0
        self.blocks: dict[int, Any] = {}

    def device_count(self) -> int:
        return self.devices

    def device_properties(self, device: int) -> DeviceProperties:
        return DeviceProperties(f"Plain {device}", total_memory_bytes=self.limit)

    def memory_allocate(self, device: int, kind: MemoryKind, size_bytes: int, stream: Any) -> int:
        if kind != MemoryKind.DEVICE:
            raise NotImplementedError(f"no memory of kind {kind.name}")
        if self.used + size_bytes > self.limit:
            raise OutOfMemory(f"plain:{device} has {self.limit - self.used} bytes left")
        block = ctypes.create_string_buffer(size_bytes + ALIGNMENT)
        address = -(-ctypes.addressof(block) // ALIGNMENT) * ALIGNMENT
        self.blocks[address] = block
        self.used += size_bytes
        return address

    def memory_free(self, device: int, kind: MemoryKind, address: int, size_bytes: int, stream: Any) -> None:
        del self.blocks[address]
        self.used -= size_bytes

    def memory_copy(
        self, dst_device: int, dst: int, src_device: int, src: int, size_bytes: int, kind: CopyKind, stream: Any
    ) -> None:
        if kind == CopyKind.PEER:
            raise NotImplementedError("no copies between devices")
        copy_host_memory(dst, src, size_bytes)


class Failing(Plain):
    """Raises, or returns, what a test puts here."""

    name = "failing"
    outcome: Any = None

    def memory_fill(self, device: int, dst: int, pattern: bytes, size_bytes: int, stream: Any) -> None:
        if Failing.outcome is not None:
            raise Failing.outcome
        host_memory(dst, size_bytes)[:] = pattern * (size_bytes // len(pattern))


class SlowStart(Plain):
    """Lets other threads run while it starts."""

    name = "slowstart"

    def initialize(self) -> None:
        time.sleep(0.3)


class Losable(Plain):
    """A device that goes away on demand."""

    name = "losable"
    lost = False

    def memory_copy(self, *arguments: Any) -> None:
        if Losable.lost:
            raise DeviceLost("the cable was pulled")
        super().memory_copy(*arguments)


calls: list[tuple[Any, ...]] = []
"""What kernels of :class:`Computing` were called with."""


def add(context: KernelContext, a: TensorView, b: TensorView, alpha: float, out: TensorView) -> None:
    calls.append((context.device, context.stream, a, b, alpha, out))
    out.numpy()[...] = a.numpy() + alpha * b.numpy()


def softmax(context: KernelContext, x: TensorView, dim: int, half_to_float: bool, out: TensorView) -> object:
    calls.append((x.dtype, dim, half_to_float))
    return NotImplemented


def total(
    context: KernelContext, x: TensorView, dims: tuple[int, ...] | None, keep: bool, dtype: str, out: Any
) -> None:
    calls.append((dims, keep, dtype))
    out.numpy()[...] = x.numpy().sum(axis=dims or None, keepdims=keep)


def concatenate(context: KernelContext, tensors: tuple[TensorView, ...], dim: int, out: TensorView) -> None:
    import numpy

    workspace = host_memory(context.alloc_workspace(64), 64)
    workspace[:] = b"w" * 64
    out.numpy()[...] = numpy.concatenate([tensor.numpy() for tensor in tensors], dim)


def nonzero(context: KernelContext, x: TensorView, out: None) -> None:
    import numpy

    found = numpy.argwhere(x.numpy())
    context.alloc_output(0, found.shape, "int64").numpy()[...] = found


def convolve(context: KernelContext, x: TensorView, weight: TensorView, bias: None, *arguments: Any) -> None:
    import torch

    *options, out = arguments
    calls.append(("convolve", x.strides, out.strides))
    out.numpy()[...] = torch.convolution(
        torch.from_numpy(x.numpy()), torch.from_numpy(weight.numpy()), None, *options
    ).numpy()


def subtract(context: KernelContext, a: Any, b: Any, alpha: float, out: TensorView) -> None:
    dtypes = [x.dtype if isinstance(x, TensorView) else x for x in (a, b)]
    calls.append((context.compute_dtype, *dtypes, out.dtype))
    values = [x.numpy().astype(context.compute_dtype) if isinstance(x, TensorView) else x for x in (a, b)]
    out.numpy()[...] = values[0] - alpha * values[1]


def bernoulli(context: KernelContext, x: TensorView, p: float, generator: Philox) -> None:
    calls.append((context.compute_dtype, p, generator))
    x.numpy()[...] = generator.offset


def broken(context: KernelContext, *arguments: Any) -> None:
    raise KeyError("no such register")


def attend(
    context: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    keeps: bool,
    dropout: float,
    causal: bool,
    scale: Any,
    output: Any,
    log_sums: Any,
    *philox: Any,
) -> Any:
    """Attention of float32 whose scores are masked by nothing."""
    calls.append(("attend", keeps, log_sums.shape, log_sums.dtype))
    if bias is not None or k.shape[1] != q.shape[1]:
        return NotImplemented
    scores = q.numpy() @ k.numpy().swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores[..., numpy.triu(numpy.ones(scores.shape[-2:], bool), 1)] = -numpy.inf
    sums = numpy.log(numpy.exp(scores).sum(-1))
    output.numpy()[...] = numpy.exp(scores - sums[..., None]) @ v.numpy()
    if keeps:
        log_sums.numpy()[..., : sums.shape[-1]] = sums


def attend_backward(
    context: Any, grad: Any, q: Any, k: Any, v: Any, bias: Any, output: Any, log_sums: Any, *others: Any
) -> Any:
    calls.append(("attend_backward", log_sums.shape))
    return NotImplemented


def largest(context: Any, x: Any, dim: Any, keeps: bool, places: Any) -> None:
    calls.append(("largest", x.dtype, places.dtype))
    places.numpy()[...] = x.numpy().argmax(dim, keepdims=keeps)


class Computing(Plain):
    """A device with kernels, listed and found by name."""

    name = "computing"
    kernels = {
        "aten::add.out": add,
        "aten::_softmax.out": softmax,
        "aten::sum.IntList_out": total,
        "aten::cat.out": concatenate,
        "aten::nonzero": Kernel(nonzero, allocates_output=True),
        "aten::convolution_overrideable": convolve,
        "aten::mul.out": Kernel(broken, dtypes=["float32"]),
        "aten::sub.out": Kernel(subtract, mixed_dtypes=True, numbers=True),
        "aten::bernoulli_.float": bernoulli,
    }

    def kernel_find(self, op: str) -> Any:
        if op == "aten::relu":
            return lambda context, x, out: calls.append(("relu", x.shape)) or NotImplemented
        if op == "aten::tanh.out":
            raise RuntimeError("the table is torn")
        return None


class Attending(Plain):
    """A device with attention, and with a kernel whose output has another dtype."""

    name = "attending"
    kernels = {
        "aten::_scaled_dot_product_efficient_attention": Kernel(attend, dtypes=["float32"], input_dtypes=True),
        "aten::_scaled_dot_product_efficient_attention_backward": attend_backward,
        "aten::argmax.out": Kernel(largest, dtypes=["float32"], input_dtypes=True),
    }


class Event:
    """Set when the work before its last record is done."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.done = threading.Event()
        self.done.set()
        self.time_ns = 0


class Stream:
    """A thread that works off a queue."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.work.get()()


class Threaded(Plain):
    """An asynchronous device: a thread per stream."""

    name = "threaded"

    def initialize(self) -> None:
        self.default = [Stream() for _ in range(self.devices)]
        self.delay = float(self.option("delay") or 0)

    def device_properties(self, device: int) -> DeviceProperties:
        capabilities = Capability.ASYNC | Capability.EVENT_RERECORD | Capability.EVENT_TIMING
        return DeviceProperties(
            "Threaded", total_memory_bytes=self.limit, capabilities=capabilities, stream_priorities=(0, -1)
        )

    option_keys = (*Plain.option_keys, "delay")

    def _enqueue(self, device: int, stream: Stream | None, work: Callable[[], None]) -> None:
        (stream or self.default[device]).work.put(work)

    def memory_copy(
        self, dst_device: int, dst: int, src_device: int, src: int, size_bytes: int, kind: CopyKind, stream: Any
    ) -> None:
        if kind == CopyKind.PEER:
            raise NotImplementedError("no copies between devices")

        def work() -> None:
            time.sleep(self.delay)
            copy_host_memory(dst, src, size_bytes)

        self._enqueue(src_device if kind == CopyKind.DEVICE_TO_HOST else dst_device, stream, work)

    def stream_create(self, device: int, priority: int) -> Stream:
        time.sleep(0.05)  # other threads run meanwhile, and want streams as well
        return Stream()

    def stream_destroy(self, device: int, stream: Stream) -> None:
        pass

    def stream_synchronize(self, device: int, stream: Stream | None) -> None:
        reached = threading.Event()
        self._enqueue(device, stream, reached.set)
        reached.wait()

    def stream_wait_event(self, device: int, stream: Stream | None, event: Event) -> None:
        self._enqueue(device, stream, event.done.wait)

    def event_create(self, device: int, flags: int) -> Event:
        return Event(device)

    def event_destroy(self, device: int, event: Event) -> None:
        pass

    def event_record(self, device: int, event: Event, stream: Stream | None) -> None:
        done = event.done = threading.Event()

        def work() -> None:
            event.time_ns = time.monotonic_ns()
            done.set()

        self._enqueue(device, stream, work)

    def event_query(self, device: int, event: Event) -> bool:
        return event.done.is_set()

    def event_elapsed(self, device: int, start: Event, end: Event) -> int:
        if {start.device, end.device} != {device}:
            raise ValueError("an event of another device")
        if not start.done.is_set() or not end.done.is_set():
            raise NotReady
        if not start.time_ns or not end.time_ns:
            raise ValueError("an event was never recorded")
        return end.time_ns - start.time_ns

    def stream_host_function(self, device: int, stream: Stream | None, function: Callable[[], None]) -> None:
        self._enqueue(device, stream, function)


plain_object = Plain.__new__(Plain)
plain_object.devices, plain_object.limit, plain_object.used, plain_object.blocks = 3, 1 << 20, 0, {}
"""An object, made before torch_backend saw it."""
