"""Autograd's device threads end before Python does.

Each has a Python thread state, takes the GIL to drop the objects of the last backward pass, and takes it again to drop
its state when it leaves. If Python is ending by then, the process aborts. The engine would send the threads away only
when static objects are destroyed, which is too late, and does not wait for the last step. All versions up to 2.15; an
exit handler. May go once the engine ends its threads before the interpreter: test_processes.py and test_lifecycles.py
then pass without it.
"""

import atexit
import contextlib
import os
import time
from pathlib import Path


def end_threads_with_process() -> None:
    """Do so at exit. Not in a forked child, which has no such threads."""
    from torch_backend import _C

    process = os.getpid()

    def end() -> None:
        if os.getpid() != process:
            return
        _C.stop_autograd_threads()
        deadline = time.monotonic() + 5  # the engine leaves busy threads alone: they stay
        while _has_autograd_threads() and time.monotonic() < deadline:
            time.sleep(0.001)

    atexit.register(end)


def _has_autograd_threads() -> bool:
    """Whether this process has a thread with the name that the engine gives its own; False where that is unknown."""
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            if path.read_text().startswith("pt_autograd"):
                return True
    return False
