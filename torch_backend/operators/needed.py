"""What a program needs of a device: the operators that it called and that the core does not serve by itself."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from torch_backend import _C
from torch_backend.operators import dispatch
from torch_backend.operators.calls import OperatorCalls
from torch_backend.operators.forms import forms_of

SERVED_EVERYWHERE = frozenset({"native", "composite"})
"""Sources of the core's own kernels, and of operators that are made of others, which are counted themselves."""


@dataclass(frozen=True)
class NeededOperator:
    """One operator, by the overload that a device library's kernel is named after.

    Attributes:
        op: the out overload where there is one, else the functional or the in-place one.
        schema: of ``op``.
        calls: of all its forms.
        generated: whether a device that takes modules gets a kernel for it.
    """

    op: str
    schema: str
    calls: int
    generated: bool


def needed_operators(calls: Iterable[OperatorCalls]) -> list[NeededOperator]:
    """What :func:`count_calls` has counted, by operator; most calls first."""
    counts: Counter[str] = Counter()
    for entry in calls:
        if entry.source not in SERVED_EVERYWHERE:
            forms = forms_of(entry.op)
            counts[forms.out or forms.functional or entry.op] += entry.calls
    given = set(_C.generated_kernels())
    return [
        NeededOperator(op, str(dispatch.schema(op)), number, not given.isdisjoint({op, *forms_of(op)}))
        for op, number in counts.most_common()
    ]
