"""As torch_backend counts them, which has brought the device to PyTorch: every call and every fallback, with bytes."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_backend import fallback, operators
from torch_conformance.sources import Call, Seen


class Counted:
    """The calls as the core has counted them."""

    @contextmanager
    def noted(self) -> Iterator[Seen]:
        """Note the calls of a block of code."""
        seen = Seen()
        fallback.reset()
        try:
            with operators.count_calls() as counts:
                yield seen
        finally:
            seen.fallbacks = {entry.op: (entry.calls, entry.bytes_copied, entry.seconds) for entry in fallback.report()}
        for entry in counts.entries:
            if entry.source != "composite" and entry.source != "unavailable":
                seen.calls.append(Call(entry.op, entry.source))
