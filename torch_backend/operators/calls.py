"""Which kernels a program uses: operator calls on the device, counted."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from torch_backend import _C
from torch_backend.operators.sources import SOURCES, Source


@dataclass(frozen=True)
class OperatorCalls:
    """How often one operator overload was called, with a kernel of one source."""

    op: str
    source: Source
    calls: int


@dataclass
class CallCounts:
    """What :func:`count_calls` counted; filled when its with statement ends."""

    entries: tuple[OperatorCalls, ...] = field(default=())

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(entry.calls for entry in self.entries)

    def by_source(self) -> dict[Source, int]:
        """Calls by source; every source of :data:`SOURCES` is there."""
        counts: Counter[Source] = Counter(dict.fromkeys(SOURCES, 0))
        for entry in self.entries:
            counts[entry.source] += entry.calls
        return dict(counts)

    def __str__(self) -> str:
        """One line: calls and share of every source."""
        total = self.calls
        return ", ".join(
            f"{source} {calls:,} ({100 * calls / total if total else 0:.1f}%)"
            for source, calls in self.by_source().items()
        )


_counting = threading.Lock()


@contextmanager
def count_calls() -> Iterator[CallCounts]:
    """Count every operator call on the device inside a with statement, in all threads.

    Raises RuntimeError if calls are being counted already. Calls are slower while they are counted.
    """
    if not _counting.acquire(blocking=False):
        raise RuntimeError("Operator calls are being counted already: count_calls() cannot be nested.")
    try:
        counts = CallCounts()
        _C.count_operator_calls(True)
        try:
            yield counts
        finally:
            counts.entries = tuple(
                OperatorCalls(op, cast(Source, source), calls) for op, source, calls in _C.operator_calls()
            )
            _C.count_operator_calls(False)
    finally:
        _counting.release()
