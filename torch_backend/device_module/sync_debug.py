"""Finding operations that make the host wait for the device."""

from torch_backend import _C

_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens when an operation makes the host wait for the device: nothing, a warning, or an error.

    Args:
        debug_mode: "default" or 0, "warn" or 1, "error" or 2.

    Explicit waits (:func:`synchronize`, ``Stream.synchronize``) are never reported.
    """
    mode = _MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in _MODES.values():
        raise ValueError(f"debug_mode is {debug_mode!r}; expected one of {', '.join(map(repr, _MODES))}, or 0, 1, 2.")
    _C.set_sync_debug_mode(mode)


def get_sync_debug_mode() -> int:
    """0: nothing, 1: warn, 2: error."""
    return _C.get_sync_debug_mode()
