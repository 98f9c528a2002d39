"""The allocator of a device's memory: ranges of a number line, best fit, neighbours joined when they are freed."""

import bisect

ALIGNMENT = 64


class RangeAllocator:
    """Hands out ranges of [0, size_bytes). Knows no memory; one thread at a time."""

    def __init__(self, size_bytes: int) -> None:
        """Start with everything free."""
        self.size_bytes = size_bytes
        self.free_bytes = size_bytes
        self._free: dict[int, int] = {0: size_bytes}  # offset to size
        self._used: dict[int, tuple[int, int]] = {}  # offset to the size that was taken and that was asked for
        self._used_offsets: list[int] = []  # sorted

    def allocate(self, size_bytes: int) -> int:
        """The offset of a new range. Raises MemoryError if none is large enough."""
        needed = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        fitting = [(size, offset) for offset, size in self._free.items() if size >= needed]
        if not fitting:
            raise MemoryError(
                f"no room for {size_bytes} bytes: {self.free_bytes} of {self.size_bytes} are free, the largest piece "
                f"has {max(self._free.values(), default=0)}"
            )
        size, offset = min(fitting)
        del self._free[offset]
        if size > needed:
            self._free[offset + needed] = size - needed
        self._used[offset] = (needed, size_bytes)
        bisect.insort(self._used_offsets, offset)
        self.free_bytes -= needed
        return offset

    def release(self, offset: int, size_bytes: int) -> None:
        """Take a range back. Raises ValueError unless it is one that was handed out."""
        taken, asked = self._used.get(offset, (0, -1))
        if asked != size_bytes:
            raise ValueError(f"there is no allocation of {size_bytes} bytes at offset {offset:#x}")
        del self._used[offset]
        del self._used_offsets[bisect.bisect_left(self._used_offsets, offset)]
        self.free_bytes += taken
        self._insert_free(offset, taken)

    def _insert_free(self, offset: int, size: int) -> None:
        after = self._free.pop(offset + size, 0)
        before = next((start for start, length in self._free.items() if start + length == offset), None)
        if before is not None:
            size += self._free.pop(before)
            offset = before
        self._free[offset] = size + after

    def find(self, offset: int) -> tuple[int, int] | None:
        """Offset and size of the allocation that an offset lies in."""
        position = bisect.bisect_right(self._used_offsets, offset) - 1
        if position < 0:
            return None
        start = self._used_offsets[position]
        size = self._used[start][1]
        return (start, size) if offset < start + size else None
