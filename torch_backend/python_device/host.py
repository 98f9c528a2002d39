"""The core's services (tb_host) for a device written in Python."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator

from torch_backend.abi.constants import LogLevel
from torch_backend.abi.structs import tb_host


class Host:
    """The services that tb_plugin_entry was given; they stay valid."""

    def __init__(self, services: tb_host) -> None:
        """Take them; what lies past their struct_size is not read."""
        self.services = services

    def fail(self, status: int, text: str) -> int:
        """Keep ``text`` for the failing status that the calling thread is about to return, which this returns."""
        # A printf format whose arguments would have to be variadic, so there are none.
        self.services.fail(status, text.replace("%", "%%").replace("\0", "\\0").encode("utf-8", "replace"))
        return status

    def log(self, level: LogLevel, text: str) -> None:
        """Write to the core's log."""
        self.services.log(level, text.replace("\0", "\\0").encode("utf-8", "replace"))

    def option(self, key: str) -> str | None:
        """The user's setting for "<plugin>.<key>"."""
        value: bytes | None = self.services.option(key.encode())
        return None if value is None else value.decode("utf-8", "replace")


class _Entering(threading.local):
    host: Host | None = None


_entering = _Entering()


def entering_host() -> Host | None:
    """The services of the entry that runs on this thread, None if there is none."""
    return _entering.host


@contextlib.contextmanager
def entered_with(services: "ctypes._Pointer[tb_host]") -> Iterator[Host]:
    """Have the services at hand while an entry runs."""
    before = _entering.host
    _entering.host = Host(services.contents)
    try:
        yield _entering.host
    finally:
        _entering.host = before
