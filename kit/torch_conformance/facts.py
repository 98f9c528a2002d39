"""What a test tells the report about itself, besides whether it passed."""

from collections.abc import Callable

_Recorder = Callable[[dict[str, object]], None]
_recorder: _Recorder | None = None


def record(**facts: object) -> None:
    """Add facts to the running test's result. Values are what JSON can hold. Outside the kit's runs, nothing happens.

    What is recorded before a crash is in the report.
    """
    if _recorder is not None:
        _recorder(facts)


def record_to(recorder: _Recorder | None) -> None:
    """Say who takes what :func:`record` is given; None for nobody."""
    global _recorder
    _recorder = recorder
