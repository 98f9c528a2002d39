"""What served an operator's calls on the device."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch.testing._internal.opinfo.core import OpInfo

from torch_backend import fallback, operators
from torch_backend.operators import OperatorCalls, Source, dispatch

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

    @contextmanager
    def running(self) -> Iterator[None]:
        """The operator runs inside."""
        fallback.reset()
        try:
            with operators.count_calls() as counts:
                yield
        finally:
            fell_back = fallback.report()
            for entry in fell_back:
                total = self._fallbacks[entry.op]
                total[:] = map(sum, zip(total, (entry.calls, entry.bytes_copied, entry.seconds), strict=True))
        source: Source | None = "fallback" if fell_back else self._source_of(counts.entries)
        if source is not None:
            self._sources.add(source)

    def _source_of(self, entries: tuple[OperatorCalls, ...]) -> Source | None:
        kernels = [entry for entry in entries if entry.source not in ("composite", "unavailable")]
        own = [entry.source for entry in kernels if _base(entry.op) in self._names]
        if own:
            return _worst(own)
        working = [entry for entry in kernels if not _only_prepares(entry.op)] or kernels
        if len({entry.op for entry in working}) > 1:
            return "composite"
        return working[0].source if working else None

    @property
    def source(self) -> Source | None:
        """What served the operator; None if it ran nothing on the device."""
        return _worst(self._sources) if self._sources else None

    @property
    def fallbacks(self) -> dict[str, list[float]]:
        """By overload that fell back: calls, bytes copied between device and host, and seconds."""
        return dict(self._fallbacks)


def _worst(sources: "set[Source] | list[Source]") -> Source:
    return next(source for source in _WORST_FIRST if source in sources)


def _base(operator: str) -> str:
    """The name that all forms of an operator share: "add" of "aten::add_.Tensor", "softmax" of "aten::_softmax.out"."""
    return operator.split("::")[-1].split(".")[0].strip("_")


@cache
def _only_prepares(overload: str) -> bool:
    """Whether the operator computes nothing: it makes a view, or memory for a result."""
    if _base(overload).startswith(("empty", "new_empty", "resize")):
        return True
    schema = torch._C._get_schema(*_split(overload))
    return any(
        returned.alias_info is not None and not returned.alias_info.is_write for returned in schema.returns
    ) or dispatch.has_tag(overload, torch.Tag.inplace_view)


def _split(overload: str) -> tuple[str, str]:
    name, _, suffix = overload.partition(".")
    return name, suffix
