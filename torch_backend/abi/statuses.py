"""The results of calls."""

from enum import IntEnum


class Status(IntEnum):
    """TB_STATUS_*."""

    OK = 0
    NOT_READY = 1
    UNSUPPORTED = 2
    OUT_OF_MEMORY = 3
    INVALID_ARGUMENT = 4
    DEVICE_LOST = 5
    INTERNAL = 6
    TIMEOUT = 7


def status_name(value: int) -> str:
    """How messages call a status: "OUT_OF_MEMORY"; "9, which is no status" for a value that device.h does not list."""
    try:
        return Status(value).name
    except ValueError:
        return f"{value}, which is no status"


class DeviceError(RuntimeError):
    """A call of a device library failed.

    Attributes:
        call: what was called, "memory_allocate".
        status: a :class:`Status`, or a number that is none.
        text: the device library's explanation, "" if it gave none.
    """

    def __init__(self, call: str, status: int, text: str) -> None:
        """Take what the call returned."""
        super().__init__(f"{call} failed with {status_name(status)}{': ' + text if text else ' and gave no reason'}")
        self.call = call
        self.status = status
        self.text = text
