"""The process that is a device: its memory, its allocator, its streams and its executor, at the driver's service.

It ends when the driver's process does, however that ends: the control connection is closed then, and the parent gone.
"""

import contextlib
import itertools
import os
import select
import signal
import socket
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .allocator import RangeAllocator
from .memory import Memory
from .streams import Event, Immediate, Pause, Stream
from .wire import OK, Channel, Closed, TensorAt

if TYPE_CHECKING:
    from .executor import Executor

_LOOK_SECONDS = 0.5

_STATUSES = {MemoryError: "out of memory", NotImplementedError: "unsupported", ValueError: "invalid"}
"""How replies call what went wrong; anything else is "failed"."""


class Daemon:
    """Answers requests. Any thread: requests come over several connections."""

    def __init__(self, memory_bytes: int, pinned: int | None) -> None:
        """Reserve the memory. There are streams if there is ``pinned``, the file of the program's pinned memory."""
        self._memory = Memory(memory_bytes)
        self._host = None if pinned is None else Memory(os.fstat(pinned).st_size, pinned)
        self._lock = threading.Lock()  # of the allocator, and while the executor is made
        self._allocator = RangeAllocator(memory_bytes)
        self._executor: Executor | None = None
        self._numbers = itertools.count(1)
        self._kept: dict[int, Any] = {0: Immediate() if pinned is None else Stream()}
        """Streams, events and the like, by the numbers that requests call them; 0 is the default stream."""

    def answer(self, name: str, arguments: Sequence[Any]) -> Any:
        """Do what a request asks for; bytes follow the reply."""
        return getattr(self, f"_do_{name}")(*arguments)

    def _keep(self, thing: Any) -> int:
        number = next(self._numbers)
        self._kept[number] = thing
        return number

    # ---- memory ----

    def _do_allocate(self, size_bytes: int) -> int:
        with self._lock:
            return self._allocator.allocate(size_bytes)

    def _do_release(self, offset: int, size_bytes: int) -> None:
        with self._lock:
            self._allocator.release(offset, size_bytes)
            self._memory.give_back(offset, size_bytes)

    def _do_find(self, offset: int) -> tuple[int, int] | None:
        with self._lock:
            return self._allocator.find(offset)

    def _do_info(self) -> tuple[int, int]:
        with self._lock:
            return self._allocator.free_bytes, self._allocator.size_bytes

    # ---- work ----

    def _do_enqueue(self, stream: int, work: str, *arguments: Any) -> None:
        self._kept[stream].enqueue(partial(getattr(self, f"_work_{work}"), *arguments))

    def _do_run(self, stream: int, work: str, *arguments: Any) -> Any:
        return self._kept[stream].run(partial(getattr(self, f"_work_{work}"), *arguments))

    def _do_settle(self, stream: int) -> None:
        self._kept[stream].run(lambda: None)

    def _do_read(self, stream: int, offset: int, size_bytes: int) -> Any:
        return self._kept[stream].run(lambda: bytes(self._memory.at(offset, size_bytes)))

    def _work_write(self, offset: int, data: bytearray) -> None:
        self._memory.at(offset, len(data))[:] = data

    def _work_write_pinned(self, offset: int, host_offset: int, size_bytes: int) -> None:
        assert self._host is not None
        self._memory.copy(offset, host_offset, size_bytes, source=self._host)

    def _work_read_pinned(self, host_offset: int, offset: int, size_bytes: int) -> None:
        assert self._host is not None
        self._host.copy(host_offset, offset, size_bytes, source=self._memory)

    def _work_copy(self, dst: int, src: int, size_bytes: int) -> None:
        self._memory.copy(dst, src, size_bytes)

    def _work_copy_rows(self, *how: int) -> None:
        self._memory.copy_rows(*how)

    def _work_fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        self._memory.fill(dst, pattern, size_bytes)

    def _work_operator(self, op: str, arguments: Sequence[Any]) -> None:
        self._torch().run(op, arguments)

    def _work_fill_outputs(self, op: str, arguments: Sequence[Any]) -> None:
        self._torch().fill(op, arguments)

    def _work_compute(self, op: str, arguments: Sequence[Any]) -> Any:
        return self._torch().compute(op, arguments)

    def _work_store(self, number: int, targets: Sequence[TensorAt | None]) -> None:
        self._torch().store(number, targets)

    def _torch(self) -> "Executor":
        with self._lock:
            if self._executor is None:  # torch is imported when there is something to compute
                from .executor import Executor

                self._executor = Executor(self._memory)
            return self._executor

    # ---- streams and events ----

    def _do_create_stream(self) -> int:
        return self._keep(Stream())

    def _do_destroy_stream(self, stream: int) -> None:
        self._kept.pop(stream).close()

    def _do_synchronize_stream(self, stream: int) -> None:
        self._kept[stream].point().result().tell()

    def _do_create_event(self) -> int:
        return self._keep(Event())

    def _do_destroy_event(self, event: int) -> None:
        del self._kept[event]

    def _do_record(self, event: int, stream: int) -> None:
        self._kept[event].point = self._kept[stream].point()

    def _do_wait_event(self, stream: int, event: int) -> None:
        if (point := self._kept[event].point) is not None:
            self._kept[stream].enqueue(point.result)

    def _do_is_done(self, stream_or_event: int) -> bool:
        done: bool = self._kept[stream_or_event].is_done()
        return done

    def _do_synchronize_event(self, event: int) -> None:
        if (point := self._kept[event].point) is not None:
            point.result().tell()

    def _do_elapsed(self, start: int, end: int) -> int | None:
        nanoseconds: int | None = self._kept[start].nanoseconds_to(self._kept[end])
        return nanoseconds

    # ---- what the program waits for beside its streams ----

    def _do_pause(self, stream: int) -> int:
        pause = Pause()
        self._kept[stream].enqueue(pause.hold)
        return self._keep(pause)

    def _do_wait_pause(self, pause: int) -> None:
        self._kept[pause].wait()

    def _do_resume(self, pause: int) -> None:
        self._kept.pop(pause).resume()

    def _do_point_of(self, event: int) -> int | None:
        """The last record under a number of its own: the event may be recorded again before it is waited for."""
        point = self._kept[event].point
        return None if point is None else self._keep(point)

    def _do_wait_point(self, point: int) -> None:
        self._kept.pop(point).result()


def _status(error: Exception) -> str:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), "failed")


def _text(error: Exception) -> str:
    if _status(error) != "failed" or isinstance(error, RuntimeError):  # ATen's errors speak for themselves
        return str(error).split("\nException raised from ")[0]
    return "".join(traceback.format_exception(error)[-3:]).strip()


def _serve(daemon: Daemon, channel: Channel) -> None:
    """Answer what comes over a connection, one request after the other, until it ends."""
    with contextlib.suppress(Closed):
        while True:
            name, arguments, follow = channel.receive()
            if follow:
                arguments = (*arguments, channel.receive_bytes(follow))
            try:
                value = daemon.answer(name, arguments)
            except Exception as error:
                channel.send((_status(error), _text(error)))
            else:
                is_bytes = isinstance(value, bytes)
                channel.send((OK, None if is_bytes else value), memoryview(value) if is_bytes else None)
    channel.close()


def main(control: int, parent: int, memory_bytes: int, pinned: int | None) -> None:
    """Run until the process ``parent``, which has the other end of the socket ``control``, is gone.

    Connections come over it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; its end is this one's
    daemon = Daemon(memory_bytes, pinned)
    connections = socket.socket(fileno=control)
    while os.getppid() == parent:
        if not select.select([connections], [], [], _LOOK_SECONDS)[0]:
            continue
        try:
            descriptors = socket.recv_fds(connections, 1, 1)[1]
        except OSError:
            break
        if not descriptors:
            break
        channel = Channel(socket.socket(fileno=descriptors[0]))
        threading.Thread(target=_serve, args=(daemon, channel), daemon=True).start()
    os._exit(0)  # whatever is under way
