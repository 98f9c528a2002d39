"""The driver of one device: starts its daemon and asks it, and notices when it is gone."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from torch_backend.python_device import DeviceLost, InternalError, OutOfMemory

from .wire import OK, Channel, Closed

_START = "import sys; sys.path[:] = {path!r}; from {package}.daemon import main; main({fd}, {memory}, {parent})"
_GONE_SECONDS = 5.0

_ERRORS: dict[str, Callable[[str], Exception]] = {
    "out of memory": OutOfMemory,
    "unsupported": NotImplementedError,
    "invalid": ValueError,
}


class Driver:
    """One daemon, started by the first request. Any thread; requests take turns."""

    def __init__(self, device: str, memory_bytes: int) -> None:
        """Of the device that messages call ``device``."""
        self._device = device
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
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
        with self._lock:
            status, value = self._exchange((name, arguments), send, receive)
        if status == OK:
            return value
        text = f"{self._device}: {value}"
        raise _ERRORS.get(status, InternalError)(text)

    def _exchange(self, request: Any, send: memoryview | None, receive: memoryview | None) -> Any:
        if self._lost is not None:
            raise DeviceLost(self._lost)
        try:
            channel = self._channel or self._start()
            channel.send(request, send)
            reply = channel.receive()
            if reply[0] == OK and receive is not None:
                channel.receive_into(receive)
            return reply
        except Closed:
            self._lost = f"{self._device}: its daemon {self._ending()}"
        except BaseException as error:  # such as Ctrl-C: the two sides may no longer be at the same message
            self._lost = f"{self._device}: a request was broken off by {type(error).__name__}"
            self._close()
            raise
        self._close()
        raise DeviceLost(self._lost)

    def _start(self) -> Channel:
        ours, theirs = socket.socketpair()
        start = _START.format(
            path=sys.path,
            package=__package__,
            fd=theirs.fileno(),
            memory=self._memory_bytes,
            parent=os.getpid(),
        )
        # Not this process's environment: `import torch` there must not look for devices.
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=environment
            )
        self._channel = Channel(ours)
        # A forked child would keep the connection open after this process has ended.
        os.register_at_fork(after_in_child=self._close)
        return self._channel

    def _ending(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"(process {self._process.pid}) does not answer"
        if code >= 0:
            return f"(process {self._process.pid}) ended with code {code}"
        return f"(process {self._process.pid}) was ended by {signal.Signals(-code).name}"

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
