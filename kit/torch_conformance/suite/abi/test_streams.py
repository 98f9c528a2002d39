"""Streams: the order of work on one, waiting for one, and what two have to do with each other."""

import ctypes
from functools import partial

import pytest

from torch_backend.abi import CopyKind, Device, DeviceLibrary, Status, status_name
from torch_conformance import facts, needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import (
    Hold,
    call_optional,
    expect_bytes,
    expect_to_wait,
    host_function,
    host_memory,
    memory,
    pattern,
    pause,
    some_streams,
)

pytestmark = needs.capability("ASYNC")

_SIZE = 1 << 16
_LONG = 16 << 20  # bytes whose copy takes longer than many of _SIZE take to enqueue


@promise("all calls 10.2")
def test_work_on_one_stream_runs_in_order(library: DeviceLibrary) -> None:
    """Copies on one stream run one after the other, in the order they were enqueued."""
    steps = 20
    for device in library.devices:
        with (
            some_streams(device) as streams,
            memory(device, _SIZE) as first,
            memory(device, _SIZE) as second,
            memory(device, 2 * _LONG) as before,
        ):
            for stream in streams:
                device.copy(before, before + _LONG, _LONG, CopyKind.DEVICE_TO_DEVICE, stream)
                sources = [ctypes.create_string_buffer(pattern(_SIZE, seed=step), _SIZE) for step in range(steps)]
                targets = [ctypes.create_string_buffer(_SIZE) for _ in range(steps)]
                for source, target in zip(sources, targets, strict=True):
                    device.copy(first, ctypes.addressof(source), _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    device.copy(second, first, _SIZE, CopyKind.DEVICE_TO_DEVICE, stream)
                    device.copy(ctypes.addressof(target), second, _SIZE, CopyKind.DEVICE_TO_HOST, stream)
                device.synchronize(stream)
                for step, (source, target) in enumerate(zip(sources, targets, strict=True)):
                    expect_bytes(target.raw, source.raw, f"{device}: step {step} of {steps} on one stream")


@promise("all calls 10.2")
@needs.slot("stream_host_function")
def test_small_work_does_not_overtake_large_work(library: DeviceLibrary) -> None:
    """A small copy that was enqueued after a large one writes after it."""
    size = 8 << 20
    large, small = pattern(size, seed=1), pattern(16, seed=2)
    for device in library.devices:
        with (
            device.stream() as stream,
            memory(device, size) as address,
            host_memory(device, large) as source,
            host_memory(device, small) as last,
        ):
            with Hold(device, stream):
                device.copy(address, source, size, CopyKind.HOST_TO_DEVICE, stream)
                device.copy(address + size - 16, last, 16, CopyKind.HOST_TO_DEVICE, stream)
            actual = device.read(address + size - 16, 16, stream)
            expect_bytes(actual, small, f"{device}: 16 bytes that were copied over the end of a larger copy")


@promise("stream_synchronize 1 2")
@needs.slot("stream_host_function")
def test_synchronize_waits_for_all_work(library: DeviceLibrary) -> None:
    """stream_synchronize returns when everything on the stream is complete, and not before."""
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                expect_to_wait(
                    device,
                    stream,
                    partial(device.synchronize, stream),
                    "stream_synchronize returned while work on the stream was not complete",
                )


@promise("stream_synchronize 1")
def test_synchronize_makes_copies_visible(library: DeviceLibrary) -> None:
    """After stream_synchronize the host has what was copied to it."""
    size = 4 << 20
    for device in library.devices:
        data = pattern(size)
        target = ctypes.create_string_buffer(size)
        with device.stream() as stream, memory(device, size) as address:
            device.write(address, data, stream)
            device.copy(ctypes.addressof(target), address, size, CopyKind.DEVICE_TO_HOST, stream)
            device.synchronize(stream)
            expect_bytes(target.raw, data, f"{device}: stream_synchronize returned before {size} bytes were copied")


@promise("device_synchronize 1")
@needs.slot("stream_host_function")
@needs.slot("device_synchronize")
def test_device_synchronize_waits_for_all_streams(library: DeviceLibrary) -> None:
    """device_synchronize waits for the default stream and for those that were created."""
    for device in library.devices:
        with device.stream() as first, device.stream() as second:
            for stream in (None, first, second):
                which = "the default stream" if stream is None else "a created stream"
                expect_to_wait(
                    device,
                    stream,
                    partial(call_optional, device, "device_synchronize", device.index),
                    f"device_synchronize returned while work on {which} was not complete",
                )


@promise("stream_query 1 2")
@needs.slot("stream_host_function")
@needs.slot("stream_query")
def test_a_query_tells_whether_work_is_pending(library: DeviceLibrary) -> None:
    """stream_query is NOT_READY while work is pending, OK when it is complete, and never waits."""
    for device in library.devices:
        with some_streams(device) as streams:
            for stream in streams:
                with Hold(device, stream, patient=True) as hold:
                    status = library.status("stream_query", device.index, stream)
                    if status == Status.UNSUPPORTED:
                        needs.not_offered("stream_query answered UNSUPPORTED")
                    hold.expect_held("stream_query")
                    assert status in (Status.OK, Status.NOT_READY), (
                        f"{device}: stream_query returned {status_name(status)} while work was pending: "
                        f"{library.error_text()}"
                    )
                    assert status == Status.NOT_READY, (
                        f"{device}: stream_query says that all is complete, but the stream is held"
                    )
                assert device.is_idle(stream), f"{device}: stream_query is NOT_READY after stream_synchronize"


@promise("all calls 10.2")
@needs.slot("stream_host_function")
def test_a_held_stream_does_not_change_what_another_does(library: DeviceLibrary) -> None:
    """Work on one stream is right while another one stands still."""
    size = 4097
    for device in library.devices:
        data = pattern(size)
        with device.stream() as held, device.stream() as free, memory(device, size) as address:
            with Hold(device, held) as hold:
                hold.expect_begun()
                device.write(address, data, free)
                expect_bytes(device.read(address, size, free), data, f"{device}: copies beside a held stream")
                facts.record(streams_run_side_by_side=not hold.ended)


@promise("stream_destroy 1")
@needs.slot("stream_host_function")
def test_a_stream_that_is_destroyed_completes_its_work(library: DeviceLibrary) -> None:
    """Work that is on a stream when it is destroyed still runs."""
    for device in library.devices:
        data = pattern(_SIZE)
        with memory(device, _SIZE) as address, host_memory(device, data) as source, device.event() as event:
            device.write(address, bytes(_SIZE))
            with device.stream() as stream:
                host_function(device, pause, stream)
                device.copy(address, source, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                device.record(event, stream)
            device.wait_event(event)
            device.synchronize()
            expect_bytes(device.read(address, _SIZE), data, f"{device}: a copy on a stream that was destroyed")


@promise("tb_device_properties.stream_priority_lowest, stream_create 2")
def test_streams_take_every_priority(library: DeviceLibrary) -> None:
    """Streams of the lowest, the highest and a middle priority are created, and do their work."""
    for device in library.devices:
        lowest, highest = device.properties.stream_priority_lowest, device.properties.stream_priority_highest
        for priority in {lowest, highest, (lowest + highest) // 2}:
            with device.stream(priority) as stream, memory(device, 64) as address:
                data = pattern(64, seed=priority)
                device.write(address, data, stream)
                expect_bytes(
                    device.read(address, 64, stream), data, f"{device}: copies on a stream of priority {priority}"
                )


@promise("all calls 7.1, stream_create 1")
def test_many_streams_exist_at_once(library: DeviceLibrary) -> None:
    """Thirty-two streams exist at once, each is another, and each does its own work."""
    for device in library.devices:
        handles: list[int] = []
        blocks: list[int] = []
        try:
            for number in range(32):
                handle = ctypes.c_void_p()
                lowest = device.properties.stream_priority_lowest
                library.check("stream_create", device.index, lowest, ctypes.byref(handle))
                assert handle.value is not None, f"{device}: stream_create gave NULL, which is the default stream"
                handles.append(handle.value)
                blocks.append(device.allocate(64))
                device.write(blocks[-1], pattern(64, seed=number), handle.value)
            assert len(set(handles)) == len(handles), f"{device}: stream_create gave the same stream twice"
            for number, (handle_value, block) in enumerate(zip(handles, blocks, strict=True)):
                expect_bytes(
                    device.read(block, 64, handle_value), pattern(64, seed=number), f"{device}: one of 32 streams"
                )
        finally:
            for handle_value in handles:
                library.check("stream_destroy", device.index, handle_value)
            for block in blocks:
                device.free(block, 64)


@promise("all calls 10.1")
@needs.devices(2)
def test_every_device_has_its_own_default_stream(library: DeviceLibrary) -> None:
    """The default stream of each device does the work of that device."""
    first, second = library.devices[:2]
    with memory(first, _SIZE) as one, memory(second, _SIZE) as two:
        first.write(one, pattern(_SIZE, seed=1))
        second.write(two, pattern(_SIZE, seed=2))
        expect_bytes(first.read(one, _SIZE), pattern(_SIZE, seed=1), f"{first}: on its default stream")
        expect_bytes(second.read(two, _SIZE), pattern(_SIZE, seed=2), f"{second}: on its default stream")


def _enqueue_copies(device: Device, address: int, source: int, stream: int | None, count: int) -> None:
    for _ in range(count):
        device.copy(address, source, _SIZE, CopyKind.HOST_TO_DEVICE, stream)


@pytest.mark.parametrize("count", [1, 1000], ids=["one", "thousand"])
def test_a_stream_takes_much_work(library: DeviceLibrary, count: int) -> None:
    """A thousand copies may be enqueued before anybody waits."""
    for device in library.devices:
        data = pattern(_SIZE)
        source = ctypes.create_string_buffer(data, _SIZE)
        with device.stream() as stream, memory(device, _SIZE) as address:
            _enqueue_copies(device, address, ctypes.addressof(source), stream, count)
            expect_bytes(device.read(address, _SIZE, stream), data, f"{device}: after {count} copies")
