"""Memory of this process by its address, for devices that keep theirs in it and for the host's side of copies."""

import ctypes


def host_memory(address: int, size_bytes: int) -> memoryview:
    """The bytes at an address, to be read and written in place.

    The view does not keep the memory alive: use it before the call that gave the address returns, or before the memory
    is freed. An address that is not this process's ends the process when it is used.
    """
    if size_bytes < 0 or (size_bytes and not address):
        raise ValueError(f"There are no {size_bytes} bytes at {address:#x}.")
    return memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")


def copy_host_memory(dst: int, src: int, size_bytes: int) -> None:
    """Copy between two ranges of this process's memory. Other threads of Python run meanwhile."""
    ctypes.memmove(dst, src, size_bytes)
