"""Many threads at once."""

import ctypes
from contextlib import ExitStack

from torch_backend.abi import Device, DeviceLibrary
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import expect_bytes, pattern
from torch_conformance.threads import in_numbered_threads

_THREADS = 8
_TURNS = 25
_SIZES = (1, 64, 1000, 4097, 65537)


def _work(device: Device, number: int, turns: int) -> None:
    """Allocate, copy in, copy out, compare, free."""
    with ExitStack() as stack:
        stream = stack.enter_context(device.stream()) if device.is_async else None
        for turn in range(turns):
            size = _SIZES[(number + turn) % len(_SIZES)]
            data = pattern(size, seed=1000 * number + turn)
            with device.allocation(size) as address:
                device.write(address, data, stream)
                expect_bytes(
                    device.read(address, size, stream), data, f"{device}: thread {number} of {_THREADS}, turn {turn}"
                )


@promise("all calls 8.1")
def test_threads_use_one_device_at_once(library: DeviceLibrary) -> None:
    """Eight threads allocate and copy on one device, each on its own stream."""
    for device in library.devices:
        in_numbered_threads(_THREADS, lambda number, device=device: _work(device, number, _TURNS))  # type: ignore[misc]


@promise("all calls 8.1")
@needs.devices(2)
def test_threads_use_different_devices_at_once(library: DeviceLibrary) -> None:
    """Eight threads that use different devices do not disturb each other."""
    devices = library.devices
    in_numbered_threads(_THREADS, lambda number: _work(devices[number % len(devices)], number, _TURNS))


@promise("thread_bind 1")
@needs.devices(2)
def test_a_thread_changes_its_device(library: DeviceLibrary) -> None:
    """Threads that go from device to device at each call get the device that they name."""

    def work(number: int) -> None:
        for turn in range(_TURNS):
            for device in library.devices:
                size = 1 << 14
                address = device.allocate(size)
                try:
                    data = pattern(size, seed=1000 * number + turn)
                    device.write(address, data)
                    if "memory_query" in library.core:
                        found = device.query_pointer(address)
                        assert found.device in (device.index, -1), (
                            f"memory that a thread allocated on {device} lies on device {found.device}: threads share "
                            "their current device"
                        )
                    expect_bytes(device.read(address, size), data, f"{device}: thread {number}, turn {turn}")
                finally:
                    device.free(address, size)

    in_numbered_threads(4, work)


def _created(library: DeviceLibrary, slot: str, device: Device, argument: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    library.check(slot, device.index, argument, ctypes.byref(handle))
    return handle


@promise("thread_bind 1")
def test_a_new_thread_gives_back_what_another_has_made(library: DeviceLibrary) -> None:
    """Memory, streams and events go in a thread that has called nothing before but thread_bind, if that is there."""
    for device in library.devices:
        address = device.allocate(4096)
        in_numbered_threads(1, lambda _, device=device, address=address: device.free(address, 4096))  # type: ignore[misc]
        if not device.is_async:
            continue
        for create, destroy in (("event_create", "event_destroy"), ("stream_create", "stream_destroy")):
            handle = _created(library, create, device, 0)
            in_numbered_threads(
                1,
                lambda _, destroy=destroy, index=device.index, handle=handle: library.check(destroy, index, handle),  # type: ignore[misc]
            )


@promise("all calls 8.1")
@needs.capability("ASYNC")
def test_threads_share_a_stream(library: DeviceLibrary) -> None:
    """Threads that enqueue on the same stream each get their own work done."""
    for device in library.devices:
        with device.stream() as stream:

            def work(number: int, device: Device = device, stream: int = stream) -> None:
                with device.allocation(4096) as address:
                    for turn in range(_TURNS):
                        data = pattern(4096, seed=100 * number + turn)
                        device.write(address, data, stream)
                        expect_bytes(
                            device.read(address, 4096, stream), data, f"{device}: thread {number} on a shared stream"
                        )

            in_numbered_threads(_THREADS, work)


@promise("all calls 8.1")
@needs.capability("ASYNC")
def test_threads_create_and_destroy_streams_and_events(library: DeviceLibrary) -> None:
    """Streams and events come and go in eight threads at once."""

    def work(number: int) -> None:
        device = library.devices[number % len(library.devices)]
        for _ in range(_TURNS):
            with device.stream() as stream, device.event() as event:
                device.record(event, stream)
                device.wait_event(event)
                device.synchronize(stream)
                assert device.is_complete(event), f"{device}: an event is NOT_READY after its stream was synchronized"
        device.synchronize()

    in_numbered_threads(_THREADS, work)


@promise("all calls 8.1")
def test_memory_is_freed_by_another_thread(library: DeviceLibrary) -> None:
    """Memory that one thread allocated is written and freed by others."""
    for device in library.devices:
        blocks = [device.allocate(4096) for _ in range(_THREADS)]

        def work(number: int, device: Device = device, blocks: list[int] = blocks) -> None:
            data = pattern(4096, seed=number)
            device.write(blocks[number], data)
            expect_bytes(device.read(blocks[number], 4096), data, f"{device}: memory of another thread")
            device.free(blocks[number], 4096)

        in_numbered_threads(_THREADS, work)
