"""Handles of C for objects of Python: what the core keeps and passes back."""

import itertools
from typing import Any

_STEP = 16  # PyTorch's stream ids need even handles, and these look like addresses of objects


class Handles:
    """The live objects of one kind, "stream" or "event"."""

    def __init__(self, kind: str) -> None:
        """Start without any."""
        self._kind = kind
        self._numbers = itertools.count(_STEP, _STEP)
        self._objects: dict[int, Any] = {}

    def add(self, value: Any) -> int:
        """A handle for the object, which is kept."""
        if value is None:
            raise TypeError(f"{self._kind}_create returned None; expected the {self._kind}, any other object")
        handle = next(self._numbers)
        self._objects[handle] = value
        return handle

    def get(self, handle: int | None) -> Any:
        """The object; None for NULL. Raises ValueError if there is no such object."""
        if not handle:
            return None
        try:
            return self._objects[handle]
        except KeyError:
            raise ValueError(f"{handle:#x} is no {self._kind}") from None

    def remove(self, handle: int | None) -> None:
        """Keep the object no longer."""
        if handle:
            self._objects.pop(handle, None)


class LiveHandles:
    """What the core holds of a device library."""

    def __init__(self) -> None:
        """Start without any."""
        self.streams = Handles("stream")
        self.events = Handles("event")

    def of(self, c_type: str) -> Handles | None:
        """Those whose handles have this type in device.h; None for every other type."""
        return {"tb_stream*": self.streams, "tb_event*": self.events}.get(c_type)
