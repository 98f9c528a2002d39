"""The slots for streams and events, which the device has if openreg.streams is 1."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from torch_backend.python_device import Capability, DeviceLost, EventFlag, NotReady, PythonDevice

from .driver import Driver
from .options import Options

DEFAULT_STREAM = 0
"""What the daemon calls it."""

STREAM_CAPABILITIES = Capability.ASYNC | Capability.EVENT_TIMING | Capability.EVENT_RERECORD


@dataclass(frozen=True)
class Event:
    """An event of the daemon of a device, by the daemon's number."""

    device: int
    number: int


class StreamSlots(PythonDevice):
    """A stream is the number that its daemon knows it by.

    Attributes:
        options: of the user.
        drivers: of the devices.
    """

    options: Options
    drivers: list[Driver]

    def offers(self, slot: str) -> bool:
        """None of these without the option."""
        return super().offers(slot) and (self.options.streams or slot not in vars(StreamSlots))

    def stream_create(self, device: int, priority: int) -> int:
        number: int = self.drivers[device].request("create_stream")
        return number

    def stream_destroy(self, device: int, stream: int) -> None:
        self.drivers[device].request("destroy_stream", stream)

    def stream_synchronize(self, device: int, stream: int | None) -> None:
        self.drivers[device].request("synchronize_stream", stream or DEFAULT_STREAM)

    def stream_query(self, device: int, stream: int | None) -> bool:
        done: bool = self.drivers[device].request("is_done", stream or DEFAULT_STREAM)
        return done

    def stream_wait_event(self, device: int, stream: int | None, event: Event) -> None:
        if event.device == device:
            self.drivers[device].request("wait_event", stream or DEFAULT_STREAM, event.number)
            return
        other = self.drivers[event.device]
        point = other.request("point_of", event.number)
        if point is not None:
            self.stream_host_function(device, stream, lambda: _wait_for(other, point))

    def stream_host_function(self, device: int, stream: int | None, function: Callable[[], None]) -> None:
        """Hold the stream up when it gets there, while a thread of this process calls the function."""
        driver = self.drivers[device]
        pause = driver.request("pause", stream or DEFAULT_STREAM)

        def call() -> None:
            with suppress(DeviceLost):
                driver.request("wait_pause", pause)
            try:
                function()
            finally:
                with suppress(DeviceLost):
                    driver.request("resume", pause)

        try:
            threading.Thread(target=call, daemon=True).start()
        except BaseException:
            driver.request("resume", pause)
            raise

    def event_create(self, device: int, flags: EventFlag) -> Event:
        if flags & EventFlag.INTERPROCESS:
            raise NotImplementedError("events of openreg are its process's alone")
        return Event(device, self.drivers[device].request("create_event"))

    def event_destroy(self, device: int, event: Event) -> None:
        self.drivers[device].request("destroy_event", event.number)

    def event_record(self, device: int, event: Event, stream: int | None) -> None:
        self.drivers[device].request("record", event.number, stream or DEFAULT_STREAM)

    def event_query(self, device: int, event: Event) -> bool:
        done: bool = self.drivers[device].request("is_done", event.number)
        return done

    def event_synchronize(self, device: int, event: Event) -> None:
        self.drivers[device].request("synchronize_event", event.number)

    def event_elapsed(self, device: int, start: Event, end: Event) -> int:
        if start.device != end.device:
            raise ValueError(f"the events are of openreg:{start.device} and openreg:{end.device}")
        nanoseconds: int | None = self.drivers[device].request("elapsed", start.number, end.number)
        if nanoseconds is None:
            raise NotReady
        return nanoseconds


def _wait_for(driver: Driver, point: int) -> None:
    with suppress(DeviceLost):  # then nothing is to be waited for
        driver.request("wait_point", point)
