"""What served an operator's calls on the device."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance import routes
from torch_conformance.sources import Call, Seen, Source, views

_WORST_FIRST: tuple[Source, ...] = ("fallback", "composite", "aten", "generated", "native", "extension", "plugin")


class Watch:
    """The source of an operator: what served its own calls on the device inside :meth:`running`.

    Of one call:

    - "fallback", if any operator that ran fell back to the CPU;
    - else the source of the kernel with the operator's own name, if that ran. What such a kernel calls inside is its
      own business;
    - else, leaving out views and new memory, which every operator may need: the source of the one operator that ran,
      or "composite" if several did.

    Of several calls, the first of these that one of them had: fallback, composite, aten, generated, native,
    extension, plugin.

    Copies of samples and of results are outside, so they do not count.
    """

    def __init__(self, op: OpInfo) -> None:
        name = str(op.aten_name)
        self._names = {_base(name.replace(".", "_")), _base(name.split(".")[-1])}
        self._sources: set[Source] = set()
        self._fallbacks: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
        self._calls = routes.of_this_process().calls()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The operator runs inside."""
        try:
            with self._calls.noted() as seen:
                yield
        finally:
            self._add(seen)

    def _add(self, seen: Seen) -> None:
        for op, cost in seen.fallbacks.items():
            total = self._fallbacks[op]
            total[:] = map(sum, zip(total, cost, strict=True))
        source: Source | None = "fallback" if seen.fallbacks else self._source_of(seen.calls)
        if source is not None:
            self._sources.add(source)

    def _source_of(self, calls: Collection[Call]) -> Source | None:
        own = [call.source for call in calls if _base(call.op) in self._names]
        if own:
            return _worst(own)
        working = [call for call in calls if not views.only_prepares(call.op)] or calls
        sources = {call.op: call.source for call in working}
        if len(sources) > 1:
            return "composite"
        return next(iter(sources.values()), None)

    @property
    def source(self) -> Source | None:
        """What served the operator; None if it ran nothing on the device."""
        return _worst(self._sources) if self._sources else None

    @property
    def fallbacks(self) -> dict[str, list[float]]:
        """By overload that fell back: calls, bytes copied between device and host, and seconds."""
        return dict(self._fallbacks)


def _worst(sources: "Collection[Source]") -> Source:
    return next(source for source in _WORST_FIRST if source in sources)


def _base(operator: str) -> str:
    """The name that all forms of an operator share: "add" of "aten::add_.Tensor", "softmax" of "aten::_softmax.out"."""
    return operator.split("::")[-1].split(".")[0].strip("_")
