"""What waits for a device to be active. Imports nothing, so that it can be asked before torch is there."""

import threading
from collections.abc import Callable

_lock = threading.Lock()
_waiting: list[Callable[[], None]] = []
_active = False


def when_active(action: Callable[[], None]) -> Callable[[], None]:
    """Call ``action`` now if a device is active, otherwise once when one becomes so, in the order of these calls.

    Returns a function that calls the waiting off; it does nothing once ``action`` was called.
    """
    with _lock:
        if not _active:
            _waiting.append(action)
            return lambda: _call_off(action)
    action()
    return lambda: None


def _call_off(action: Callable[[], None]) -> None:
    with _lock:
        if action in _waiting:
            _waiting.remove(action)


def run(name: str) -> None:
    """The device ``name`` is active: call everything that waited.

    All are called even if some fail; then RuntimeError says what failed, caused by the first failure.
    """
    global _active
    with _lock:
        _active = True
        actions = list(_waiting)
        _waiting.clear()
    failures = []
    for action in actions:
        try:
            action()
        except Exception as error:
            failures.append(error)
    if failures:
        raise RuntimeError(
            f"The device '{name}' is active, but not all that waited for it could be registered: "
            + " ".join(str(failure) for failure in failures)
        ) from failures[0]
