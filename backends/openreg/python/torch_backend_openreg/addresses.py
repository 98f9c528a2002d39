"""Addresses of device memory, in the process that uses the device: reserved, and without anything behind them."""

import ctypes
import mmap

_NO_ACCESS = 0
_FAILED = ctypes.c_void_p(-1).value


def reserve(size_bytes: int) -> int:
    """The first of ``size_bytes`` addresses that nothing else in this process gets, and that nobody can use.

    A load or store there ends the process with SIGSEGV, at the line that makes it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    address: int | None = libc.mmap(None, size_bytes, _NO_ACCESS, flags, -1, 0)
    if address is None or address == _FAILED:
        raise MemoryError(f"there is no room for {size_bytes} addresses in this process")
    return address
