"""The memory of a device, in its daemon, and that which the program shares with it."""

import ctypes
import mmap

_GIVEN_BACK_AT = 1 << 20  # bytes; smaller ranges are not worth a system call


class Memory:
    """Pages that only this process has, or all who open a file.

    Attributes:
        pages: all of it.
    """

    def __init__(self, size_bytes: int, file_descriptor: int | None = None) -> None:
        """Reserve it; pages are there once they are written. With a file those of the file."""
        flags = getattr(mmap, "MAP_NORESERVE", 0)
        if file_descriptor is None:
            self.pages = mmap.mmap(-1, size_bytes, flags=flags | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self.pages = mmap.mmap(file_descriptor, size_bytes, flags=flags | mmap.MAP_SHARED)
        self._first = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self._gives_back = mmap.MADV_DONTNEED if file_descriptor is None else mmap.MADV_REMOVE

    def at(self, offset: int, size_bytes: int) -> memoryview:
        """A range. Raises ValueError if it is not all in this memory."""
        self.address(offset, size_bytes)
        return memoryview(self.pages)[offset : offset + size_bytes]

    def address(self, offset: int, size_bytes: int) -> int:
        """Where a range begins. Raises ValueError if it is not all in this memory."""
        if offset < 0 or size_bytes < 0 or offset + size_bytes > len(self.pages):
            raise ValueError(f"{size_bytes} bytes at offset {offset:#x} are not in the device's {len(self.pages):#x}")
        return self._first + offset

    def copy(self, dst: int, src: int, size_bytes: int, source: "Memory | None" = None) -> None:
        """Copy within this memory, or from another. Other threads run meanwhile, as with slices they would not."""
        ctypes.memmove(self.address(dst, size_bytes), (source or self).address(src, size_bytes), size_bytes)

    def copy_rows(self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int) -> None:
        """Copy rows within the device."""
        for row in range(height):
            self.copy(dst + row * dst_pitch, src + row * src_pitch, width)

    def fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        """Repeat a pattern."""
        target = self.at(dst, size_bytes)
        piece = pattern * (min(size_bytes, 1 << 16) // len(pattern))
        for start in range(0, size_bytes, len(piece)):
            end = min(start + len(piece), size_bytes)
            target[start:end] = piece[: end - start]

    def give_back(self, offset: int, size_bytes: int) -> None:
        """Let the system have the pages of a range that nobody uses any more."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (offset + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end - start >= _GIVEN_BACK_AT:
            self.pages.madvise(self._gives_back, start, end - start)
