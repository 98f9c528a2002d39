"""Where a call of the core enters Python: whatever happens there becomes a status, and nothing passes."""

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from torch_backend.abi.statuses import Status
from torch_backend.python_device.errors import HandedOn, status_of, text_of
from torch_backend.python_device.host import Host

_INTERRUPT_SECONDS = 0.05

_GIVES_BACK = ("memory_free", "stream_destroy", "event_destroy", "ipc_close", "memory_unmap", "host_unregister")


def guarded(name: str, function: Callable[..., int | None], host: Host) -> Callable[..., int]:
    """``function`` as the core may call it, from any thread: it returns a status, None for OK.

    While the interpreter shuts down, the modules that a device uses may be gone: it is not called then, and is lost;
    what gives something back counts as done.
    """
    late = Status.OK if name in _GIVES_BACK else Status.DEVICE_LOST
    ok, internal, is_finalizing = int(Status.OK), int(Status.INTERNAL), sys.is_finalizing

    def call(*arguments: Any) -> int:
        if is_finalizing():
            return late
        try:
            status = function(*arguments)
            return ok if status is None else status
        except BaseException as error:
            try:
                return _failed(name, error, host)
            except BaseException as second:  # no memory, or no stack, to say it with
                if isinstance(second, KeyboardInterrupt):
                    _interrupt_later()
                return internal

    return call


def _interrupt_later() -> None:
    """Let Ctrl-C be raised again once the call is over: at once it would be raised in here."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(_INTERRUPT_SECONDS, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()


def _failed(name: str, error: BaseException, host: Host) -> int:
    if isinstance(error, HandedOn):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        _interrupt_later()
        return host.fail(Status.INTERNAL, f"{name} was interrupted")
    status = status_of(error)
    if status == Status.NOT_READY:
        return status
    return host.fail(status, text_of(error))
