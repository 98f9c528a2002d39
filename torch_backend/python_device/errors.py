"""What a device's Python functions raise, and the status and text that the core gets for it."""

import os
import traceback

from torch_backend.abi.statuses import DeviceError, Status

_FRAMES = 3
_OWN_FOLDER = os.path.dirname(__file__)


class OutOfMemory(MemoryError):
    """The device is full: OUT_OF_MEMORY. The core empties its caches and asks again."""


class DeviceLost(RuntimeError):
    """The device is gone for good: DEVICE_LOST. The core never calls it again; other devices go on."""


class NotReady(Exception):
    """The work is not complete: NOT_READY. Only from queries, which may also return False."""


class InternalError(RuntimeError):
    """The device or its driver failed: INTERNAL. Like any other exception, but only its text is reported."""


class HandedOn(Exception):
    """A service of the core failed with this status, and has kept the text for it."""

    def __init__(self, status: int) -> None:
        """Take what the service returned."""
        super().__init__(status)
        self.status = status


_STATUSES: tuple[tuple[type[BaseException], Status], ...] = (
    (DeviceLost, Status.DEVICE_LOST),
    (NotReady, Status.NOT_READY),
    (MemoryError, Status.OUT_OF_MEMORY),
    (NotImplementedError, Status.UNSUPPORTED),
    (TimeoutError, Status.TIMEOUT),
    (ValueError, Status.INVALID_ARGUMENT),
)


def status_of(error: BaseException) -> int:
    """The status for an exception: that of a DeviceError of another library, else by its class, else INTERNAL."""
    if isinstance(error, DeviceError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.INTERNAL)


def text_of(error: BaseException) -> str:
    """The explanation for an exception. One that stands for no status is most likely a mistake: it tells its place."""
    if status_of(error) != Status.INTERNAL or isinstance(error, (DeviceError, InternalError)):
        return str(error) or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if os.path.dirname(frame.filename) != _OWN_FOLDER]
    frames_told = outside[-_FRAMES:] or frames[-1:]
    places = "".join(
        f"\n  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line or ''}" for frame in frames_told
    )
    return f"{''.join(traceback.format_exception_only(error)).strip()}{places}"
