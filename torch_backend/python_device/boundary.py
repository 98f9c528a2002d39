"""Where a call of the core enters Python: whatever happens there becomes a status, and nothing passes."""

import _thread
import sys
from collections.abc import Callable
from typing import Any

from torch_backend.abi.statuses import Status
from torch_backend.python_device.errors import HandedOn, status_of, text_of
from torch_backend.python_device.host import Host

_GIVES_BACK = ("memory_free", "stream_destroy", "event_destroy", "ipc_close", "memory_unmap", "host_unregister")


def guarded(name: str, function: Callable[..., int | None], host: Host) -> Callable[..., int]:
    """``function`` as the core may call it, from any thread: it returns a status, None for OK.

    While the interpreter shuts down, the modules that a device uses may be gone: it is not called then, and what gives
    something back counts as done.
    """
    late = Status.OK if name in _GIVES_BACK else Status.INTERNAL
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
            except BaseException:  # no memory, or no stack, to say it with
                return internal

    return call


def _failed(name: str, error: BaseException, host: Host) -> int:
    if isinstance(error, HandedOn):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # raised again as soon as the call is over
        return host.fail(Status.INTERNAL, f"{name} was interrupted")
    status = status_of(error)
    if status == Status.NOT_READY:
        return status
    return host.fail(status, text_of(error))
