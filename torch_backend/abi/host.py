"""The services that a device library is opened with in a process without torch."""

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from torch_backend.abi.constants import LogLevel
from torch_backend.abi.structs import tb_host
from torch_backend.files import installed

_LOG_TEXT_BYTES = 1020


class _LogLine(ctypes.Structure):
    _fields_ = [("level", ctypes.c_int32), ("text", ctypes.c_char * _LOG_TEXT_BYTES)]


@dataclass(frozen=True)
class LogLine:
    """What a device library wrote to the log; ``level`` is a number if device.h does not list it."""

    level: LogLevel | int
    text: str


@functools.cache
def _library() -> ctypes.CDLL:
    path = installed.host_library()
    if not path.is_file():
        raise FileNotFoundError(f"This installation of torch_backend has no '{path}'. Reinstall torch_backend.")
    library = ctypes.CDLL(str(path))
    library.tb_host_services.restype = ctypes.POINTER(tb_host)
    library.tb_host_take_error_text.restype = ctypes.c_char_p
    library.tb_host_set_option.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    library.tb_host_take_log_line.argtypes = (ctypes.POINTER(_LogLine),)
    return library


def services() -> tb_host:
    """The services. Where they lie does not change."""
    pointer: ctypes._Pointer[tb_host] = _library().tb_host_services()
    return pointer.contents


def take_error_text() -> str:
    """What the device library last explained to the calling thread, and forgets; "" if nothing."""
    text: bytes = _library().tb_host_take_error_text()
    return text.decode("utf-8", errors="replace")


def set_options(plugin: str, options: Mapping[str, str]) -> None:
    """Set what the device library ``plugin`` gets for its keys. They replace TORCH_BACKEND_<PLUGIN>_<KEY>."""
    for key, value in options.items():
        if _library().tb_host_set_option(f"{plugin}.{key}".encode(), value.encode()) != 0:
            raise MemoryError(f"no room for the option {plugin}.{key}")


def take_log() -> list[LogLine]:
    """The lines that device libraries have written since the last call, the oldest first; at most the last 256."""
    lines = []
    line = _LogLine()
    while _library().tb_host_take_log_line(line):
        level = LogLevel(line.level) if line.level in LogLevel.__members__.values() else line.level
        lines.append(LogLine(level, line.text.decode("utf-8", errors="replace")))
    return lines
