"""Whether a shared library is all there.

The loader maps what the file's headers promise: a file that was cut off ends the process with SIGBUS.
"""

import os
import struct
from typing import BinaryIO

_MAGIC = b"\x7fELF"
_LOADED = 1  # PT_LOAD
# By the class of the file: e_phoff, e_phentsize and e_phnum with their place in the header, and the form and places of
# p_offset and p_filesz in an entry.
_CLASSES = {
    1: ("I4x6xHH", 28, "I", 4, 16),
    2: ("Q8x6xHH", 32, "Q", 8, 32),
}
_HEADER_BYTES = 64


def fault_of(path: str | os.PathLike[str]) -> str | None:
    """Why the file at ``path`` cannot be opened safely, with what to do; None if nothing is known against it.

    A file that is no ELF file is left to the loader, which refuses it. Raises OSError if it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            needed = _needed_bytes(file)
        except struct.error:
            return f"'{os.fspath(path)}' ends within its headers. {_TODO}"
    if needed is not None and needed > size:
        return f"'{os.fspath(path)}' was cut off: its headers describe {needed} bytes, and the file has {size}. {_TODO}"
    return None


_TODO = "Copy, download or build it again; the disk may have been full."


def _needed_bytes(file: BinaryIO) -> int | None:
    header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC):
        return None
    if len(header) < _HEADER_BYTES:
        raise struct.error("no room for a header")
    if header[4] not in _CLASSES:
        return None
    header_format, place, number, offset_at, size_at = _CLASSES[header[4]]
    order = "<" if header[5] == 1 else ">"
    table, entry_bytes, entries = struct.unpack_from(order + header_format, header, place)
    needed = table + entry_bytes * entries
    for index in range(entries):
        file.seek(table + index * entry_bytes)
        entry = file.read(entry_bytes)
        (kind,) = struct.unpack_from(order + "I", entry)
        (offset,) = struct.unpack_from(order + number, entry, offset_at)
        (length,) = struct.unpack_from(order + number, entry, size_at)
        if kind == _LOADED:
            needed = max(needed, offset + length)
    return int(needed)
