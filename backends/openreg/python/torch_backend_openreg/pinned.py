"""Host memory that the devices reach: every daemon has it mapped, as a device has page-locked memory."""

import ctypes
import os
import threading

from .allocator import RangeAllocator
from .memory import Memory


class PinnedMemory:
    """The pool of it, in the program. Any thread.

    Attributes:
        file_descriptor: of the pages, for daemons.
    """

    def __init__(self, size_bytes: int) -> None:
        """Reserve it; pages are there once they are written."""
        self.file_descriptor = os.memfd_create("openreg")
        os.ftruncate(self.file_descriptor, size_bytes)
        self._memory = Memory(size_bytes, self.file_descriptor)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory.pages))
        self._allocator = RangeAllocator(size_bytes)
        self._lock = threading.Lock()

    def allocate(self, size_bytes: int) -> int:
        """The address of new memory. Raises MemoryError."""
        with self._lock:
            return self._base + self._allocator.allocate(size_bytes)

    def free(self, address: int, size_bytes: int) -> None:
        """Take it back. Raises ValueError unless it was handed out."""
        with self._lock:
            self._allocator.release(address - self._base, size_bytes)
            self._memory.give_back(address - self._base, size_bytes)

    def find(self, address: int) -> tuple[int, int] | None:
        """Address and size of the allocation that an address lies in."""
        with self._lock:
            found = self._allocator.find(address - self._base)
        return (self._base + found[0], found[1]) if found else None

    def offset(self, address: int) -> int | None:
        """Where daemons find it; None for other memory."""
        return address - self._base if self.find(address) else None
