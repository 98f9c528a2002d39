"""The simulated driver, as another user of the process calls it."""

import ctypes
import os

driver = ctypes.CDLL(os.environ["TORCH_BACKEND_XCUDA_LIBRARY_PATH"] + "/libcuda.so.1")


def current() -> int | None:
    """The thread's context."""
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value


def enter_context_of(device: int) -> int | None:
    """Make the device's context the thread's."""
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    return context.value
