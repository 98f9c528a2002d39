"""Events: when they are complete, and who waits for them."""

import ctypes
import threading
import time
from contextlib import ExitStack

import pytest

from torch_backend.abi import Capability, CopyKind, Device, DeviceLibrary, EventFlag, Status, status_name
from torch_backend.files import patience
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import (
    PATIENT_SECONDS,
    TIMES,
    Hold,
    call_optional,
    expect_bytes,
    expect_to_wait,
    host_function,
    host_memory,
    large_copies,
    memory,
    pattern,
    some_streams,
)

pytestmark = needs.capability("ASYNC")

_SIZE = 4096
_EARLY_SECONDS = 0.05
_BRIEF_SECONDS = 0.01
_TOO_FAST = "so many large copies are over before more is enqueued"
_UNTOUCHED = 0x5A5A5A5A5A5A5A5A


def _wait(device: Device, event: int) -> None:
    """Until the event is complete."""
    seconds = patience.seconds(PATIENT_SECONDS)
    end = time.monotonic() + seconds
    while not device.is_complete(event):
        assert time.monotonic() < end, f"{device}: an event is not complete {seconds:.0f} s after the work before it"
        time.sleep(0.0005)


@promise("stream_wait_event 3, event_query 1")
def test_an_event_that_was_never_recorded_is_complete(library: DeviceLibrary) -> None:
    """An event that was never recorded holds nobody up."""
    for device in library.devices:
        with device.event() as event, device.stream() as stream:
            assert device.is_complete(event), f"{device}: event_query of an event never recorded is NOT_READY"
            device.wait_event(event, stream)
            device.synchronize(stream)
            if "event_synchronize" in library.core:
                status = library.status("event_synchronize", device.index, event)
                assert status in (Status.OK, Status.UNSUPPORTED), (
                    f"{device}: event_synchronize of an event never recorded returned {status_name(status)}"
                )


@promise("event_record 1")
def test_an_event_completes_with_the_work_before_it(library: DeviceLibrary) -> None:
    """An event becomes complete when the work before it is, also if nobody synchronizes."""
    for device in library.devices:
        with some_streams(device) as streams, memory(device, _SIZE) as address:
            for stream in streams:
                source = ctypes.create_string_buffer(pattern(_SIZE), _SIZE)
                with device.event() as event:
                    device.copy(address, ctypes.addressof(source), _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                    device.record(event, stream)
                    _wait(device, event)
                    assert device.is_complete(event), f"{device}: an event that was complete is NOT_READY"
                    device.synchronize(stream)


@promise("TB_STATUS_LIST 2.2, event_record 1 2, event_query 1 2")
@needs.slot("stream_host_function")
def test_an_event_is_pending_while_the_work_before_it_is(library: DeviceLibrary) -> None:
    """event_query is NOT_READY until the work before the record has run, and does not wait for it."""
    for device in library.devices:
        with some_streams(device) as streams, device.event() as event:
            for stream in streams:
                with Hold(device, stream, patient=True) as hold:
                    device.record(event, stream)
                    status = library.status("event_query", device.index, event)
                    hold.expect_held("event_record or event_query")
                    assert status in (Status.OK, Status.NOT_READY), (
                        f"{device}: event_query of a pending event returned {status_name(status)} instead of "
                        f"NOT_READY: {library.error_text()}"
                    )
                    assert status == Status.NOT_READY, (
                        f"{device}: the event is complete, but work that was enqueued before its record is not"
                    )
                assert device.is_complete(event), f"{device}: an event is NOT_READY after its stream was synchronized"


@promise("event_synchronize 1")
@needs.slot("stream_host_function")
@needs.slot("event_synchronize")
def test_event_synchronize_waits_for_the_work_before_it(library: DeviceLibrary) -> None:
    """event_synchronize returns when the work before the record is complete, and not before."""
    for device in library.devices:
        with device.stream() as stream, ExitStack() as events:
            recorded: list[int] = []

            def record(device: Device = device, stream: int = stream, to: list[int] = recorded) -> None:
                to.append(events.enter_context(device.event()))
                if Capability.EVENT_RERECORD in library.capabilities:  # what it waits for is the last record
                    device.record(to[-1])
                    device.synchronize()
                device.record(to[-1], stream)

            expect_to_wait(
                device,
                stream,
                lambda device=device, of=recorded: call_optional(device, "event_synchronize", device.index, of[-1]),  # type: ignore[misc]
                "event_synchronize returned while work before the record was not complete",
                record,
            )


def _expect_waits(
    producer: Device, consumer: Device, destroy_pending: bool = False, record_again: bool = False
) -> None:
    """A stream of ``consumer`` that waits for an event of ``producer`` runs after what was before the record.

    Also if the event is destroyed meanwhile, or recorded on another stream, where it is complete at once.
    """
    data = pattern(_SIZE, seed=1)
    with (
        producer.stream() as first,
        consumer.stream() as second,
        memory(producer, _SIZE) as made,
        memory(consumer, _SIZE) as used,
        host_memory(producer, data) as source,
        host_memory(producer, bytes(_SIZE)) as shared,
    ):
        producer.write(made, bytes(_SIZE))
        event = producer.create_event()
        with Hold(producer, first) as hold:
            producer.copy(made, source, _SIZE, CopyKind.HOST_TO_DEVICE, first)
            producer.copy(shared, made, _SIZE, CopyKind.DEVICE_TO_HOST, first)
            producer.record(event, first)
            consumer.wait_event(event, second)
            consumer.copy(used, shared, _SIZE, CopyKind.HOST_TO_DEVICE, second)
            if destroy_pending:
                producer.destroy_event(event)
            if record_again:
                with producer.stream() as other:
                    producer.record(event, other)
                    producer.synchronize(other)
            hold.let_run_early(_EARLY_SECONDS)
        consumer.synchronize(second)
        if not destroy_pending:
            producer.destroy_event(event)
        expect_bytes(
            consumer.read(used, _SIZE, second),
            data,
            f"a stream of {consumer} did not wait for the event of {producer}: what it copied",
        )


@promise("stream_wait_event 1")
@needs.slot("stream_host_function")
def test_a_stream_waits_for_an_event_of_another(library: DeviceLibrary) -> None:
    """Work that is enqueued after stream_wait_event runs after the work before the event's record."""
    for device in library.devices:
        _expect_waits(device, device)


@promise("stream_wait_event 1")
@needs.devices(2)
@needs.slot("stream_host_function")
def test_a_stream_waits_for_an_event_of_another_device(library: DeviceLibrary) -> None:
    """A stream waits for an event of another device as for one of its own."""
    first, second = library.devices[:2]
    _expect_waits(first, second)
    _expect_waits(second, first)


@promise("event_destroy")
@needs.slot("stream_host_function")
def test_an_event_may_be_destroyed_while_it_is_pending(library: DeviceLibrary) -> None:
    """A stream that waits for an event still does after the event was destroyed."""
    for device in library.devices:
        _expect_waits(device, device, destroy_pending=True)


@promise("stream_wait_event 1")
@needs.capability("EVENT_RERECORD")
@needs.slot("stream_host_function")
def test_a_wait_is_for_the_record_before_it(library: DeviceLibrary) -> None:
    """A stream that waits for an event waits for the last record before the call, whatever is recorded after it."""
    for device in library.devices:
        _expect_waits(device, device, record_again=True)
        # Nor is it held up by a later record, which cannot complete before the stream goes on.
        with device.stream() as first, device.stream() as waiting, device.stream() as last, device.event() as event:
            has_run = threading.Event()
            saw: list[bool] = []
            seconds = patience.seconds(PATIENT_SECONDS)
            device.record(event, first)
            with Hold(device, waiting):
                device.wait_event(event, waiting)
                host_function(device, has_run.set, waiting)
                host_function(device, lambda saw=saw, ran=has_run, seconds=seconds: saw.append(ran.wait(seconds)), last)  # type: ignore[misc]
                device.record(event, last)
            device.synchronize(last)
            assert saw == [True], f"{device}: a stream waits for a record that was made after stream_wait_event"


@promise("all calls 10.2, stream_wait_event 1, event_record 1")
@needs.slot("stream_host_function")
def test_later_work_holds_no_event_up(library: DeviceLibrary) -> None:
    """An event completes, and who waits for it goes on, while work that was enqueued after its record is pending."""
    for device in library.devices:
        with device.stream() as first, device.stream() as second, device.event() as event:
            device.record(event, first)
            has_run = threading.Event()
            with Hold(device, first, patient=True) as hold:
                device.wait_event(event, second)
                host_function(device, has_run.set, second)
                late, waited = ["event_query", "stream_wait_event"], []
                while late and not hold.ended:
                    time.sleep(0.001)
                    done = {"event_query": device.is_complete(event), "stream_wait_event": has_run.is_set()}
                    late = [slot for slot in late if not done[slot]]
                    waited = late or waited
                assert not (hold.ended and waited), (
                    f"{device}: {waited[0]} waits for work that was enqueued after event_record: the event completes "
                    "when everything enqueued before the record is complete"
                )


@promise("stream_wait_event 2")
@needs.slot("stream_host_function")
def test_waiting_for_an_event_does_not_block_the_host(library: DeviceLibrary) -> None:
    """stream_wait_event returns while the event is pending."""
    for device in library.devices:
        with device.stream() as first, device.stream() as second, device.event() as event:
            with Hold(device, first, patient=True) as hold:
                device.record(event, first)
                device.wait_event(event, second)
                hold.expect_held("event_record or stream_wait_event")
            device.synchronize(second)


@promise("TB_CAP_EVENT_RERECORD 1, event_record 3")
@needs.capability("EVENT_RERECORD")
@needs.slot("stream_host_function")
def test_a_second_record_replaces_the_first(library: DeviceLibrary) -> None:
    """An event that is recorded again is pending until the work before the second record is complete."""
    for device in library.devices:
        with device.stream() as stream, device.event() as event:
            device.record(event, stream)
            device.synchronize(stream)
            assert device.is_complete(event), f"{device}: an event is NOT_READY after its stream was synchronized"
            with Hold(device, stream, patient=True) as hold:
                device.record(event, stream)
                complete = device.is_complete(event)
                hold.expect_held("event_record or event_query")
                assert not complete, (
                    f"{device}: event_query says OK after a second record, behind work that is pending: a second "
                    "record replaces the first"
                )
            assert device.is_complete(event), f"{device}: an event is NOT_READY after its stream was synchronized"


@promise("TB_CAP_EVENT_RERECORD 1")
@needs.capability("EVENT_RERECORD")
@needs.slot("stream_host_function")
def test_who_waits_for_the_second_record_gets_the_second(library: DeviceLibrary) -> None:
    """stream_wait_event after a second record waits for that one."""
    data = pattern(_SIZE, seed=3)
    for device in library.devices:
        with device.stream() as first, device.stream() as second, memory(device, _SIZE) as address:
            with device.event() as event, host_memory(device, bytes(_SIZE)) as shared:
                device.write(address, data, first)
                device.record(event, first)
                device.synchronize(first)
                with Hold(device, first) as hold:
                    device.copy(shared, address, _SIZE, CopyKind.DEVICE_TO_HOST, first)
                    device.record(event, first)
                    device.wait_event(event, second)
                    with memory(device, _SIZE) as used:
                        device.copy(used, shared, _SIZE, CopyKind.HOST_TO_DEVICE, second)
                        hold.let_run_early(_EARLY_SECONDS)
                        hold.release()
                        device.synchronize(second)
                        expect_bytes(device.read(used, _SIZE, second), data, f"{device}: after the second record")


@promise("TB_CAP_EVENT_RERECORD 1, event_record 3")
@needs.capability("EVENT_RERECORD")
def test_a_second_record_is_behind_copies(library: DeviceLibrary) -> None:
    """An event that is recorded again is pending while copies before it are, be there host functions or not."""
    for device in library.devices:
        with device.stream() as stream, device.event() as event, large_copies(device, stream) as copy:
            for times in TIMES:
                with device.event() as once:
                    device.record(event, stream)
                    device.synchronize(stream)
                    copy(times)
                    device.record(once, stream)
                    device.record(event, stream)
                    complete = device.is_complete(event)
                    pending = not device.is_complete(once)
                    device.synchronize(stream)
                if pending:
                    break
            else:
                needs.not_offered(_TOO_FAST)
            assert not complete, (
                f"{device}: event_query says OK after a second record, while an event that was recorded before it, for "
                "the first time, is pending: a second record replaces the first"
            )


@promise("stream_wait_event 1, TB_CAP_EVENT_RERECORD 1")
@needs.capability("EVENT_RERECORD")
@pytest.mark.parametrize("again", ["before the wait", "after the wait"])
def test_a_wait_behind_copies(library: DeviceLibrary, again: str) -> None:
    """A stream waits for the last record before the call, be there another one before or after it."""
    data = pattern(_SIZE, seed=5)
    for device in library.devices:
        with ExitStack() as stack:
            first, second, idle = (stack.enter_context(device.stream()) for _ in range(3))
            source, made, used = (stack.enter_context(memory(device, _SIZE)) for _ in range(3))
            copy = stack.enter_context(large_copies(device, first))
            device.write(source, data)
            for times in TIMES:
                device.write(made, bytes(_SIZE))
                with device.event() as event, device.event() as once:
                    if again == "before the wait":
                        device.record(event, idle)
                        device.synchronize(idle)
                    copy(times)
                    device.record(once, first)
                    device.copy(made, source, _SIZE, CopyKind.DEVICE_TO_DEVICE, first)
                    device.record(event, first)
                    device.wait_event(event, second)
                    if again == "after the wait":
                        device.record(event, idle)
                    device.copy(used, made, _SIZE, CopyKind.DEVICE_TO_DEVICE, second)
                    time.sleep(_BRIEF_SECONDS)
                    pending = not device.is_complete(once)
                    device.synchronize(second)
                    device.synchronize(first)
                expect_bytes(
                    device.read(used, _SIZE),
                    data,
                    f"a stream of {device} did not wait for the last record, with another {again}: what it copied",
                )
                if pending:
                    break
            else:
                needs.not_offered(_TOO_FAST)


@promise("event_create 2")
@pytest.mark.parametrize("flags", [1 << 7, 1 << 31, EventFlag.TIMING | 1 << 7], ids=hex)
def test_an_event_with_unknown_flags_is_unsupported(library: DeviceLibrary, flags: int) -> None:
    """A flag that the library does not know is UNSUPPORTED, and no event is given."""
    for device in library.devices:
        out = ctypes.c_void_p(_UNTOUCHED)
        status = library.status("event_create", device.index, flags, ctypes.byref(out))
        if status == Status.OK and out.value is not None:
            device.destroy_event(out.value)
        assert status == Status.UNSUPPORTED, (
            f"{device}: event_create with flags {flags:#x} returned {status_name(status)}"
        )
        assert out.value == _UNTOUCHED, f"{device}: event_create failed but wrote to out_event"


@promise("event_create 1")
def test_many_events_exist_at_once(library: DeviceLibrary) -> None:
    """A thousand events exist at once, each is another, and each completes."""
    for device in library.devices:
        with device.stream() as stream:
            events = [device.create_event() for _ in range(1000)]
            try:
                assert len(set(events)) == len(events), f"{device}: event_create gave the same event twice"
                for event in events[::10]:
                    device.record(event, stream)
                device.synchronize(stream)
                pending = [event for event in events if not device.is_complete(event)]
                assert not pending, f"{device}: {len(pending)} of 1000 events are NOT_READY after a synchronize"
            finally:
                for event in events:
                    device.destroy_event(event)
