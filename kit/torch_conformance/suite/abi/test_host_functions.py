"""Functions of the host that run on a stream."""

import ctypes
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch_backend.abi import CopyKind, Device, DeviceLibrary, tb_host_function
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import (
    PATIENT_SECONDS,
    Hold,
    enqueue_function,
    expect_bytes,
    expect_soon,
    host_function,
    host_memory,
    memory,
    pattern,
    pause,
    some_streams,
)

pytestmark = [needs.capability("ASYNC"), needs.slot("stream_host_function")]

_COUNT = 50
_ROUNDS = 10
_COPIES = 4
_SETTLE_SECONDS = 0.02


@contextmanager
def _ordinary_memory(_: Device, content: bytes) -> Iterator[int]:
    buffer = ctypes.create_string_buffer(content, len(content))
    yield ctypes.addressof(buffer)


@promise("stream_host_function 2")
def test_host_functions_run_once_and_in_order(library: DeviceLibrary) -> None:
    """Each function is called exactly once, with its argument, in the order of the stream."""
    calls: list[int] = []

    @tb_host_function  # type: ignore[untyped-decorator]
    def note(argument: int | None) -> None:
        calls.append(argument or 0)

    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                calls.clear()
                for number in range(1, _COUNT + 1):
                    enqueue_function(device, note, number, stream)
                device.synchronize(stream)
                time.sleep(_SETTLE_SECONDS)  # for a second call to come
                never = sorted(set(range(1, _COUNT + 1)) - set(calls))
                assert not never, f"{device}: {len(never)} of {_COUNT} host functions were never called"
                assert len(calls) == _COUNT, f"{device}: {_COUNT} host functions were called {len(calls)} times"
                assert calls == sorted(calls), f"{device}: host functions were called in the order {calls}"


@promise("stream_host_function 1")
def test_host_functions_run_after_what_is_before_them(library: DeviceLibrary) -> None:
    """A function sees what the copies before it brought to the host.

    Several rounds of several copies: a device that does not wait is seen even if the machine holds up the caller.
    """
    size = 1 << 20
    for device in library.devices:
        data = pattern(size)
        source = ctypes.create_string_buffer(data, size)
        with device.stream() as stream, memory(device, size) as address:
            for _ in range(_ROUNDS):
                target = ctypes.create_string_buffer(size)
                seen: list[bytes] = []
                for _ in range(_COPIES - 1):
                    device.copy(address, ctypes.addressof(source), size, CopyKind.HOST_TO_DEVICE, stream)
                device.copy(ctypes.addressof(target), address, size, CopyKind.DEVICE_TO_HOST, stream)
                host_function(device, lambda seen=seen, target=target: seen.append(target.raw), stream)  # type: ignore[misc]
                device.synchronize(stream)
                assert seen, f"{device}: a host function was not called before stream_synchronize returned"
                what = f"{device}: a host function ran before the copy that precedes it on its stream"
                expect_bytes(seen[0], data, what)


@promise("stream_host_function 1")
def test_what_follows_a_host_function_waits_for_it(library: DeviceLibrary) -> None:
    """A copy that follows a function reads what the function wrote, into memory of any kind."""
    size = 4096
    for device, kind in itertools.product(library.devices, (host_memory, _ordinary_memory)):
        data = pattern(size)
        with device.stream() as stream, memory(device, size) as address, kind(device, bytes(size)) as source:
            has_run = threading.Event()

            def write(source: int = source, data: bytes = data, has_run: threading.Event = has_run) -> None:
                pause()
                ctypes.memmove(source, data, size)
                has_run.set()

            host_function(device, write, stream)
            device.copy(address, source, size, CopyKind.HOST_TO_DEVICE, stream)
            copied = device.read(address, size, stream)
            expect_soon(has_run, f"{device}: a host function has not run")  # before its memory goes
            expect_bytes(copied, data, f"{device}: a copy did not wait for the function before it")


@promise("stream_host_function 1")
def test_host_functions_of_many_streams_all_run(library: DeviceLibrary) -> None:
    """Functions on several streams and devices are all called."""
    calls: list[int] = []
    lock = threading.Lock()

    def note() -> None:
        with lock:
            calls.append(1)

    expected = 0
    for device in library.devices:
        with device.stream() as first, device.stream() as second:
            for _ in range(_COUNT):
                for stream in (None, first, second):
                    host_function(device, note, stream)
                    expected += 1
            for stream in (None, first, second):
                device.synchronize(stream)
    assert len(calls) == expected, f"{expected} host functions were called {len(calls)} times"


@promise("stream_host_function 1")
def test_host_functions_run_while_the_caller_goes_on(library: DeviceLibrary) -> None:
    """A function is not called by the call that enqueues it, and runs though nobody waits for its stream."""
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                has_returned, has_run = threading.Event(), threading.Event()
                saw: list[bool] = []

                def run(returned: threading.Event = has_returned, ran: threading.Event = has_run) -> None:
                    saw.append(returned.wait(PATIENT_SECONDS))  # noqa: B023  # called before the next turn
                    ran.set()

                host_function(device, run, stream)
                has_returned.set()
                expect_soon(has_run, f"{device}: a host function has not run")
                assert saw == [True], f"{device}: stream_host_function returned only when its function had"
                device.synchronize(stream)


@promise("stream_host_function 1")
def test_a_host_function_may_block(library: DeviceLibrary) -> None:
    """While a function waits, functions and copies of other streams run: it has a thread that nobody needs."""
    size = 4096
    for device in library.devices:
        with device.stream() as held, device.stream() as other, memory(device, size) as address:
            with Hold(device, held, patient=True) as hold:
                hold.expect_begun()
                other_ran = threading.Event()
                host_function(device, other_ran.set, other)
                assert other_ran.wait(hold.seconds / 2), (
                    f"{device}: a host function waits, and one on another stream does not run"
                )
                start = time.monotonic()
                device.write(address, pattern(size), other)
                expect_bytes(device.read(address, size, other), pattern(size), f"{device}: a copy beside a function")
                seconds = time.monotonic() - start
                assert not hold.ended, (
                    f"{device}: a host function waits, and copies on another stream wait for it, for {seconds:.1f} s"
                )
