"""The streams of a device, in its daemon: queues of work, and the points in them that others wait for."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

Work = Callable[[], Any]


class Failure:
    """What work failed with that nobody waited for. It is told once."""

    def __init__(self, error: Exception) -> None:
        """Of ``error``."""
        self._error = error
        self._told = threading.Lock()  # held for good by who tells it

    def is_told(self) -> bool:
        """Whether somebody knows."""
        return self._told.locked()

    def tell(self) -> None:
        """Raise it, unless it was told. As a failure: that the work was unsupported is no answer for one who waits."""
        if self._told.acquire(blocking=False):
            raise RuntimeError(str(self._error)) from self._error


class Point(NamedTuple):
    """That everything before a place in a stream is done: when it was, and what had failed."""

    time_ns: int
    failure: Failure | None

    def tell(self) -> None:
        """Raise what had failed, unless it was told."""
        if self.failure is not None:
            self.failure.tell()


class Stream:
    """Work that is done in the order in which it was enqueued, by a thread of its own."""

    def __init__(self) -> None:
        """Start without work."""
        self._worker = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._last: Future[Any] | None = None
        self._failure: Failure | None = None

    def run(self, work: Work) -> Any:
        """Do work in its turn, and return its result or raise what it raises."""
        return self._submit(work).result()

    def enqueue(self, work: Work) -> None:
        """Do work in its turn. What it raises is told at the next point that somebody waits for."""
        self._submit(lambda: self._attempt(work))

    def point(self) -> "Future[Point]":
        """What is done when all that was enqueued before is done."""
        return self._submit(lambda: Point(time.monotonic_ns(), self._failure))

    def is_done(self) -> bool:
        """Whether nothing is left. Raises what failed, unless it was told."""
        if self._last is not None and not self._last.done():
            return False
        if self._failure is not None:
            self._failure.tell()
        return True

    def close(self) -> None:
        """Take no more work; what is enqueued is still done."""
        self._worker.shutdown(wait=False)

    def _submit(self, work: Work) -> "Future[Any]":
        with self._lock:
            self._last = self._worker.submit(work)
            return self._last

    def _attempt(self, work: Work) -> None:
        try:
            work()
        except Exception as error:
            if self._failure is None or self._failure.is_told():
                self._failure = Failure(error)


class Immediate:
    """The only stream of a device without streams: work is done when it is enqueued."""

    def __init__(self) -> None:
        """Start."""
        self._turn = threading.Lock()

    def run(self, work: Work) -> Any:
        """Do work; what others ask for meanwhile waits."""
        with self._turn:
            return work()

    enqueue = run


class Event:
    """Where a stream was when it was recorded.

    Attributes:
        point: of the last record; None before the first.
    """

    def __init__(self) -> None:
        """Start without a record."""
        self.point: Future[Point] | None = None

    def is_done(self) -> bool:
        """Whether the last record was reached, or there was none. Raises what failed before, unless it was told."""
        if self.point is None:
            return True
        if not self.point.done():
            return False
        self.point.result().tell()
        return True

    def nanoseconds_to(self, end: "Event") -> int | None:
        """The time between two; None unless both were reached. Raises ValueError if one was not recorded."""
        if self.point is None or end.point is None:
            raise ValueError("there is no time between two events of which one was never recorded")
        if not (self.point.done() and end.point.done()):
            return None
        return end.point.result().time_ns - self.point.result().time_ns


class Pause:
    """Work that the program does: the stream reaches it, and goes on when it is told to."""

    def __init__(self) -> None:
        """Start."""
        self._reached = threading.Event()
        self._over = threading.Event()

    def hold(self) -> None:
        """Hold the stream up, on its thread."""
        self._reached.set()
        self._over.wait()

    def wait(self) -> None:
        """Wait until the stream is here."""
        self._reached.wait()

    def resume(self) -> None:
        """Let the stream go on."""
        self._over.set()
