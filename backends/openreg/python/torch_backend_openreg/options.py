"""The options of openreg."""

import re
from collections.abc import Callable
from dataclasses import dataclass

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MAX_DEVICES = 64
_MAX_MEMORY = 1 << 44
_PAGE = 4096

KEYS = ("devices", "memory", "streams")


@dataclass(frozen=True)
class Options:
    """What the user may choose.

    Attributes:
        devices: their number.
        memory_bytes: of each, whole pages; of pinned memory there is as much.
        streams: whether devices have streams and events, and there is pinned memory.
    """

    devices: int = 2
    memory_bytes: int = 1 << 30
    streams: bool = False

    @classmethod
    def read(cls, option: Callable[[str], str | None]) -> "Options":
        """Ask for every option by its key. Raises ValueError for a value that is not understood."""
        devices, memory, streams = option("devices"), option("memory"), option("streams")
        return cls(
            _devices(devices) if devices else cls.devices,
            _memory_bytes(memory) if memory else cls.memory_bytes,
            _switch("streams", streams) if streams else cls.streams,
        )


def _devices(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_DEVICES:
        raise ValueError(f'openreg.devices is "{text}"; expected a whole number from 1 to {_MAX_DEVICES}')
    return int(text)


def _memory_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+) ?(B|KiB|MiB|GiB|TiB)", text)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not _PAGE <= size <= _MAX_MEMORY:
        raise ValueError(f'openreg.memory is "{text}"; expected a size from 4KiB to 16TiB, as in 512MiB')
    return size // _PAGE * _PAGE


def _switch(key: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f'openreg.{key} is "{text}"; expected 0 or 1')
    return text == "1"
