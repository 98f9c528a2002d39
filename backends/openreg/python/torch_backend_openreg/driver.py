"""The driver of one device: starts its daemon and asks it, and notices when it is gone."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch_backend.python_device import DeviceLost, InternalError, OutOfMemory

from .wire import OK, Channel, Closed

_START = "import sys; sys.path[:] = {path!r}; from {package}.daemon import main; main{arguments!r}"
_GONE_SECONDS = 5.0

_ERRORS: dict[str, Callable[[str], Exception]] = {
    "out of memory": OutOfMemory,
    "unsupported": NotImplementedError,
    "invalid": ValueError,
}

_CHANGE_NOTHING = ("read", "settle", "synchronize_stream", "synchronize_event", "is_done", "elapsed", "find", "info")
"""Requests that may be broken off, by Ctrl-C for one: it does not matter whether the daemon got to them."""


class Driver:
    """One daemon, started by the first request. Any thread; a request that waits keeps no other waiting."""

    def __init__(self, device: str, memory_bytes: int, pinned: int | None = None) -> None:
        """Of the device that messages call ``device``. It has streams if there is ``pinned``, a file of memory."""
        self._device = device
        self._memory_bytes = memory_bytes
        self._pinned = pinned
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._idle: list[Channel] = []
        self._lost: str | None = None

    @property
    def pid(self) -> int | None:
        """Of the daemon; None before it is started."""
        return self._process.pid if self._process is not None else None

    def request(
        self, name: str, *arguments: Any, send: memoryview | None = None, receive: memoryview | None = None
    ) -> Any:
        """Ask the daemon and return its answer; ``send`` are bytes it gets, ``receive`` takes those that it returns.

        Raises what went wrong there, and DeviceLost if the daemon is gone.
        """
        if self._lost is not None:
            raise DeviceLost(self._lost)
        try:
            with self._channel() as channel:
                channel.send((name, arguments, 0 if send is None else send.nbytes), send)
                status, value = channel.receive()
                if status == OK and receive is not None:
                    channel.receive_into(receive)
        except Closed:
            raise self._lose(f"its daemon {self._ending()}") from None
        except BaseException as error:
            if name not in _CHANGE_NOTHING:
                self._lose(f"a request was broken off by {type(error).__name__}")
            raise
        if status == OK:
            return value
        text = f"{self._device}: {value}"
        raise _ERRORS.get(status, InternalError)(text)

    @contextmanager
    def _channel(self) -> Iterator[Channel]:
        """A connection that nobody uses. One on which a request was broken off is not used again."""
        with self._lock:
            channel = self._idle.pop() if self._idle else self._open()
        try:
            yield channel
        except BaseException:
            channel.close()
            raise
        self._idle.append(channel)

    def _open(self) -> Channel:
        if self._control is None:
            self._control = self._start()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise Closed(str(error)) from error
        return Channel(ours)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        arguments = (theirs.fileno(), os.getpid(), self._memory_bytes, self._pinned)
        start = _START.format(path=sys.path, package=__package__, arguments=arguments)
        # Not this process's environment: `import torch` there must not look for devices.
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        descriptors = [theirs.fileno(), *([] if self._pinned is None else [self._pinned])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start], stdin=subprocess.DEVNULL, pass_fds=descriptors, env=environment
            )
        # A forked child would keep the connection open after this process has ended.
        os.register_at_fork(after_in_child=ours.close)
        return ours

    def _ending(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"(process {self._process.pid}) does not answer"
        if code >= 0:
            return f"(process {self._process.pid}) ended with code {code}"
        return f"(process {self._process.pid}) was ended by {signal.Signals(-code).name}"

    def _lose(self, why: str) -> DeviceLost:
        """Ask nothing more. The daemon, if there is one, ends: the threads that wait for it then learn of it."""
        with self._lock:
            self._lost = self._lost or f"{self._device}: {why}"
            if self._control is not None:
                self._control.close()
            while self._idle:
                self._idle.pop().close()
        return DeviceLost(self._lost)
