"""What the tests of the bare library share: bytes to compare, work that holds a stream, processes of their own."""

import ctypes
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from torch_backend.abi import CaptureMode, CopyKind, Device, DeviceError, DeviceLibrary, MemoryKind, Status, status_name
from torch_backend.files import modules, patience
from torch_conformance import needs

GUARD_BYTES = 64
"""How many bytes before and after a range are checked to be as they were."""

HOLD_SECONDS = 1.0
"""How long a stream is held at most: a device may make the caller wait for the work it enqueues."""

PATIENT_SECONDS = 5.0
"""... if nothing that the test does may wait for it, and how long what should happen soon is waited for.

These are for an idle machine, as are all in these tests: on a busy one they are longer, see files/patience.py.
"""

_PAUSE_SECONDS = 0.05
_BRIEF_HOLDS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

CHILD_SECONDS = 60.0
_MOST_PATIENCE = 7.0  # some wait for what would end by itself after a minute

ROUNDS = 6
"""How often a test looks at used_bytes: what other processes take in one round is hardly there in every other."""

TIMES = (1, 4, 16, 64, 256, 1024)
"""How often large memory is copied to keep a stream busy, until it was: who is fast needs more copies."""

_LARGE_BYTES = (64 << 20, 16 << 20, 2 << 20)

_PART_BYTES = 4096
_SAMPLES = 3
_SAMPLE_SECONDS = 0.005


def pattern(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes that look like no others: the same for the same seed."""
    return random.Random(seed).randbytes(size_bytes)


def expect_bytes(actual: bytes, expected: bytes, what: str) -> None:
    """Fail with the first and last byte that differ."""
    if actual == expected:
        return
    assert len(actual) == len(expected), f"{what}: {len(actual)} bytes instead of {len(expected)}"
    different = [
        i
        for start in range(0, len(expected), _PART_BYTES)
        if actual[start : start + _PART_BYTES] != expected[start : start + _PART_BYTES]
        for i in range(start, min(start + _PART_BYTES, len(expected)))
        if actual[i] != expected[i]
    ]
    first, last = different[0], different[-1]
    raise AssertionError(
        f"{what}: {len(different)} of {len(expected)} bytes are wrong, bytes {first}..{last}; byte {first} is "
        f"0x{actual[first]:02x} instead of 0x{expected[first]:02x}"
    )


@contextmanager
def memory(device: Device, size_bytes: int, kind: int = MemoryKind.DEVICE) -> Iterator[int]:
    """Memory for a block; ends the test as not offered if the device has none of an optional kind."""
    block = ExitStack()
    try:
        address = block.enter_context(device.allocation(size_bytes, kind))
    except DeviceError as error:
        if error.status != Status.UNSUPPORTED or kind == MemoryKind.DEVICE:
            raise
        needs.not_offered(f"memory_allocate of TB_MEMORY_{MemoryKind(kind).name} answered UNSUPPORTED")
    with block:
        yield address


@contextmanager
def host_memory(device: Device, content: bytes) -> Iterator[int]:
    """Memory of the host that holds ``content``: page-locked if the device has such memory.

    Copies of other memory may make the caller wait, on some devices until what is before them is complete. A stream
    that is held has then moved before the test has enqueued what it is about.
    """
    with ExitStack() as block:
        try:
            address = block.enter_context(device.allocation(len(content), MemoryKind.HOST))
        except DeviceError as error:
            if error.status != Status.UNSUPPORTED:
                raise
            buffer = ctypes.create_string_buffer(len(content))
            address = ctypes.addressof(buffer)
        ctypes.memmove(address, content, len(content))
        yield address


def total_bytes(device: Device) -> int:
    """How much memory the device has; ends the test as not offered if it does not say so."""
    total = device.properties.total_memory_bytes
    if total == 0 and "memory_info" in device.library.core:
        _, total = device.memory_info()
    if total == 0:
        needs.not_offered("total_memory_bytes is 0: unknown")
    return total


def used_bytes(device: Device) -> int:
    """How much of the device's memory is in use, as memory_info has it.

    Other processes may use the device, as other workers of the same run do: the least of some answers is taken.
    """
    answers = []
    for _ in range(_SAMPLES):
        free, total = device.memory_info()
        answers.append(total - free)
        time.sleep(_SAMPLE_SECONDS)
    return min(answers)


@contextmanager
def some_streams(device: Device) -> Iterator[list[int | None]]:
    """The default stream and, on an asynchronous device, another one."""
    if not device.is_async:
        yield [None]
        return
    with device.stream() as stream:
        yield [None, stream]


def call_optional(device: Device, slot: str, *arguments: object) -> None:
    """Call a slot of the core table; ends the test as not offered if it answers UNSUPPORTED."""
    status = device.library.status(slot, *arguments)
    if status == Status.UNSUPPORTED:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    assert status == Status.OK, f"{device}: {slot} returned {status_name(status)}: {device.library.error_text()}"


class Hold:
    """A stream that stands still in a block: what is enqueued on it in the block waits until :meth:`release`.

    A device may run work while the caller waits for it; then the hold ends by itself, and :attr:`ended` tells. A
    ``patient`` one ends late: what the block does must not wait, as :meth:`expect_held` demands.

    Attributes:
        ended: whether the stream moves again.
        seconds: how long it is held at most.
    """

    def __init__(self, device: Device, stream: int | None, patient: bool = False, seconds: float | None = None) -> None:
        self.ended = False
        self.seconds = patience.seconds(seconds or (PATIENT_SECONDS if patient else HOLD_SECONDS))
        self._device = device
        self._stream = stream
        self._begun = threading.Event()
        self._released = threading.Event()

    def __enter__(self) -> "Hold":
        host_function(self._device, self._wait, self._stream)
        return self

    def _wait(self) -> None:
        self._begun.set()
        self._released.wait(self.seconds)
        self.ended = True

    def expect_begun(self) -> None:
        """Wait until the stream stands still: on a busy machine work of another stream may be done before it does."""
        expect_soon(self._begun, f"{self._device}: a host function has not run")

    def expect_held(self, what: str) -> None:
        """Fail if the stream moves: somebody has waited for it."""
        assert not self.ended, f"{self._device}: {what} blocked until the work on the stream was complete"

    def let_run_early(self, seconds: float, *others: int | None) -> None:
        """Give what should wait for the stream time to run too early: on ``others``, streams, as long as it takes."""
        for other in others:
            self._device.synchronize(other)
        if not self.ended:
            time.sleep(min(patience.seconds(seconds), self.seconds / 2))

    def release(self) -> None:
        """Let the stream move."""
        self._released.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        # Also after an error: what the block enqueued uses memory that is about to go.
        status = self._device.library.status("stream_synchronize", self._device.index, self._stream)
        if error is None:
            assert status == Status.OK, f"{self._device}: stream_synchronize returned {status_name(status)}"


def brief_holds(device: Device, stream: int | None) -> Iterator[Hold]:
    """Holds that end by themselves, each longer than the last: for what has to wait until its stream moves.

    A stream that moves before that is called shows nothing; then the test goes on to the next. One is enough unless
    the machine is busy.
    """
    for seconds in _BRIEF_HOLDS_SECONDS:
        yield Hold(device, stream, seconds=seconds)


def expect_to_wait(
    device: Device, stream: int | None, wait: Callable[[], None], what: str, enqueue: Callable[[], None] | None = None
) -> None:
    """Fail with ``what`` if ``wait`` returns before the work on the stream is complete, ``enqueue``'s included."""
    for hold in brief_holds(device, stream):
        done = threading.Event()
        with hold:
            host_function(device, done.set, stream)
            if enqueue is not None:
                enqueue()
            was_held = not hold.ended
            wait()
            was_done = done.is_set()
        assert was_done, f"{device}: {what}"
        if was_held:
            return


@contextmanager
def large_copies(device: Device, stream: int | None) -> Iterator[Callable[[int], None]]:
    """What enqueues so many copies of large memory: they keep the stream busy where there are no host functions."""
    with ExitStack() as stack:
        for size in _LARGE_BYTES:
            stack.callback(device.synchronize)  # memory may be free only in the order of the stream
            try:
                target, source = (stack.enter_context(memory(device, size)) for _ in range(2))
                break
            except DeviceError as error:
                stack.close()
                if error.status != Status.OUT_OF_MEMORY or size == _LARGE_BYTES[-1]:
                    raise
        stack.callback(device.synchronize, stream)

        def enqueue(times: int) -> None:
            for _ in range(times):
                device.copy(target, source, size, CopyKind.DEVICE_TO_DEVICE, stream)

        yield enqueue


def expect_soon(event: threading.Event, what: str) -> None:
    """Fail with ``what`` if the event is not set soon."""
    seconds = patience.seconds(PATIENT_SECONDS)
    assert event.wait(seconds), f"{what} {seconds:.0f} s after it was enqueued"


# ---- graphs ----


def graph_call(device: Device, slot: str, *arguments: object) -> None:
    """Call a slot of graph.1, and raise DeviceError unless it returned OK; not offered if it answers UNSUPPORTED."""
    device.library.bind(device.index)
    status = device.library.noted(getattr(device.library.tables["graph.1"], slot)(device.index, *arguments))
    if status == Status.UNSUPPORTED:
        needs.not_offered(f"{slot} answered UNSUPPORTED")
    if status != Status.OK:
        raise DeviceError(slot, status, device.library.error_text())


@contextmanager
def graph_of(
    device: Device, stream: int, enqueue: Callable[[], None], mode: CaptureMode = CaptureMode.GLOBAL
) -> Iterator[int]:
    """A graph of what ``enqueue`` enqueues, ready to be launched."""
    graph_call(device, "capture_begin", stream, mode)
    enqueue()
    graph = ctypes.c_void_p()
    graph_call(device, "capture_end", stream, ctypes.byref(graph))
    assert graph.value is not None, f"{device}: capture_end gave no graph"
    try:
        graph_call(device, "graph_instantiate", graph.value)
        yield graph.value
    finally:
        graph_call(device, "graph_destroy", graph.value)


def replay(device: Device, graph: int, stream: int | None) -> None:
    """Launch a graph."""
    graph_call(device, "graph_launch", graph, stream)


# ---- host functions ----


def host_function(device: Device, function: Callable[[], None], stream: int | None) -> None:
    """Enqueue a host function; ends the test as not offered if the device answers UNSUPPORTED."""
    try:
        device.host_function(function, stream)
    except DeviceError as error:
        if error.status != Status.UNSUPPORTED:
            raise
        needs.not_offered("stream_host_function answered UNSUPPORTED")


def enqueue_function(device: Device, function: object, argument: int, stream: int | None) -> None:
    """Ends the test as not offered if the device answers UNSUPPORTED."""
    call_optional(device, "stream_host_function", device.index, stream, function, argument)


def pause() -> None:
    """A host function that takes a while."""
    time.sleep(patience.seconds(_PAUSE_SECONDS))


def run_child(
    library: DeviceLibrary, function: str, *arguments: str, timeout: float = CHILD_SECONDS, module: str = "_child"
) -> str:
    """Run a function of a module of this package in a process of its own.

    Returns what it printed; fails with what it says unless it returns.
    """
    command = modules.command(f"{__package__}.{module}", function, library.path, *arguments)
    busy = min(patience.factor(), _MOST_PATIENCE)
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout * busy, check=False, env=os.environ.copy()
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"") if isinstance(error.stdout, bytes) else (error.stdout or "").encode()
        raise AssertionError(
            f"the process has not ended after {timeout * busy:.0f} s; it said: {said.decode()!r}"
        ) from None
    said = process.stdout.encode() + process.stderr.encode()
    assert process.returncode == 0, f"the process ended with {process.returncode}: {said.decode().strip()[-1500:]}"
    return process.stdout
