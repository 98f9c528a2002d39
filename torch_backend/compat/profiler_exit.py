"""A profile that goes on when Python ends is ended.

A profiler waits for the device when it is left, and stays on if that fails. Its state would go after what it logs to,
which ends the process with SIGSEGV. All versions up to 2.15; an exit handler. May go once PyTorch ends profiles at
exit.
"""

import atexit
import contextlib


def end_profile_with_process() -> None:
    """Do so at exit."""
    import torch

    def end() -> None:
        if torch._C._autograd._profiler_enabled():
            with contextlib.suppress(RuntimeError):  # what could not be collected
                torch._C._autograd._disable_profiler()

    atexit.register(end)
