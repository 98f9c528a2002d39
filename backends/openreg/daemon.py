"""The process that is a device: its memory, its allocator and its executor, at the driver's service.

It ends when the driver's process does, however that ends: the connection is closed then. While an operator runs nobody
reads from it, so a thread looks for the parent as well.
"""

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .allocator import RangeAllocator
from .memory import Memory
from .wire import OK, Channel, Closed, TensorAt

if TYPE_CHECKING:
    from .executor import Executor

_LOOK_SECONDS = 0.5

_STATUSES = {MemoryError: "out of memory", NotImplementedError: "unsupported", ValueError: "invalid"}
"""How replies call what went wrong; anything else is "failed"."""


class Daemon:
    """Serves one driver until the connection ends."""

    def __init__(self, channel: Channel, memory_bytes: int) -> None:
        """Reserve the memory."""
        self._channel = channel
        self._memory = Memory(memory_bytes)
        self._allocator = RangeAllocator(memory_bytes)
        self._executor: Executor | None = None
        self._payload: memoryview | None = None  # of the reply

    def serve(self) -> None:
        """Answer requests, one after the other."""
        while True:
            name, arguments = self._channel.receive()
            self._payload = None
            try:
                reply = (OK, getattr(self, f"_do_{name}")(*arguments))
            except Closed:
                raise
            except Exception as error:
                reply = (_status(error), _text(error))
            self._channel.send(reply, self._payload if reply[0] == OK else None)

    def _do_hello(self) -> int:
        return os.getpid()

    def _do_allocate(self, size_bytes: int) -> int:
        return self._allocator.allocate(size_bytes)

    def _do_release(self, offset: int, size_bytes: int) -> None:
        self._allocator.release(offset, size_bytes)
        self._memory.give_back(offset, size_bytes)

    def _do_find(self, offset: int) -> tuple[int, int] | None:
        return self._allocator.find(offset)

    def _do_info(self) -> tuple[int, int]:
        return self._allocator.free_bytes, self._allocator.size_bytes

    def _do_write(self, offset: int, size_bytes: int) -> None:
        try:
            target = self._memory.at(offset, size_bytes)
        except ValueError:
            self._channel.receive_into(memoryview(bytearray(size_bytes)))  # what follows is on its way already
            raise
        self._channel.receive_into(target)

    def _do_read(self, offset: int, size_bytes: int) -> None:
        self._payload = self._memory.at(offset, size_bytes)

    def _do_copy(self, dst: int, src: int, size_bytes: int) -> None:
        self._memory.copy(dst, src, size_bytes)

    def _do_copy_rows(self, *how: int) -> None:
        self._memory.copy_rows(*how)

    def _do_fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        self._memory.fill(dst, pattern, size_bytes)

    def _do_run(self, op: str, arguments: Sequence[Any]) -> None:
        self._torch().run(op, arguments)

    def _do_fill_outputs(self, op: str, arguments: Sequence[Any]) -> None:
        self._torch().fill(op, arguments)

    def _do_compute(self, op: str, arguments: Sequence[Any]) -> Any:
        return self._torch().compute(op, arguments)

    def _do_store(self, number: int, targets: Sequence[TensorAt | None]) -> None:
        self._torch().store(number, targets)

    def _torch(self) -> "Executor":
        if self._executor is None:  # torch is imported when there is something to compute
            from .executor import Executor

            self._executor = Executor(self._memory)
        return self._executor


def _status(error: Exception) -> str:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), "failed")


def _text(error: Exception) -> str:
    if _status(error) != "failed" or isinstance(error, RuntimeError):  # ATen's errors speak for themselves
        return str(error).split("\nException raised from ")[0]
    return "".join(traceback.format_exception(error)[-3:]).strip()


def _look_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(0)


def main(file_descriptor: int, memory_bytes: int, parent: int) -> None:
    """Run until the process ``parent``, which has the other end of the socket, is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; its end is this one's
    threading.Thread(target=_look_for, args=(parent,), daemon=True).start()
    channel = Channel(socket.socket(fileno=file_descriptor))
    try:
        Daemon(channel, memory_bytes).serve()
    except Closed:
        os._exit(0)
