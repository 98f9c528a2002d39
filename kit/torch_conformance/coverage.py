"""What the results of level ops say about the device's operators: where their kernels come from, and what falls back.

Facts are what a test of an operator recorded: ``op``, ``dtype``, ``part``, ``source``, ``times_cpu``, in how many times
the CPU's time a call returned, ``fallbacks``, by overload calls, bytes copied and seconds, and of a device library's
own kernel ``milliseconds`` and ``fallback_milliseconds``; with its ``outcome``, one of
:data:`torch_conformance.results.OUTCOMES`. A test that ended early has recorded less.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, TypeAlias, get_args

from torch_conformance.results import FAILURES, Outcome, Result

Facts: TypeAlias = Mapping[str, Any]

Kind = Literal["native", "generated", "composite", "fallback"]
"""How an operator is served, in the report's words."""

Standing = Literal["native", "generated", "composite", "fallback", "failed", "not offered"]
"""What became of an entry of PyTorch's list of operators: how it is served, or that it is not."""

STANDINGS: tuple[Standing, ...] = get_args(Standing)

_KIND_OF_SOURCE: dict[str, Kind] = {
    "plugin": "native",
    "native": "native",
    "aten": "native",
    "extension": "native",
    "generated": "generated",
    "composite": "composite",
    "fallback": "fallback",
}

_WORST_FIRST: tuple[Kind, ...] = ("fallback", "composite", "generated", "native")

Direction = Literal["forward", "backward"]
"""The parts of a test that the matrix shows."""


def kind_of(source: str) -> Kind:
    """The report's word for a source of :data:`torch_backend.operators.SOURCES`."""
    return _KIND_OF_SOURCE[source]


def facts_of(results: Iterable[Result]) -> list[Facts]:
    """What the tests of operators recorded, of these results."""
    return [{**result.facts, "outcome": result.outcome} for result in results if "op" in result.facts]


# ---- entries ----


def entries_by_standing(facts: Iterable[Facts]) -> dict[Standing, int]:
    """How many entries there are of each standing; every one of :data:`STANDINGS` is there.

    An entry is "failed" if any of its tests failed, expected or not, and "not offered" if none of them passed. Else its
    standing is the worst way in which any of its tests was served: fallback, composite, generated, native.
    """
    tests: dict[str, list[Facts]] = defaultdict(list)
    for test in facts:
        tests[test["op"]].append(test)
    counts = Counter(map(_standing, tests.values()))
    return {standing: counts[standing] for standing in STANDINGS}


def shares(facts: Iterable[Facts]) -> dict[Kind, int]:
    """Per cent of the entries that passed, by their standing; together 100. Empty if none passed."""
    counts = entries_by_standing(facts)
    served: dict[Kind, int] = {kind: counts[kind] for kind in reversed(_WORST_FIRST)}
    total = sum(served.values())
    if not total:
        return {}
    # What is cut off goes where the most was, so that the sum is right.
    shares = {kind: 100 * number // total for kind, number in served.items()}
    for kind in sorted(served, key=lambda kind: -(100 * served[kind] % total))[: 100 - sum(shares.values())]:
        shares[kind] += 1
    return shares


def _standing(tests: list[Facts]) -> Standing:
    if any(test["outcome"] in FAILURES or test["outcome"] == "known" for test in tests):
        return "failed"
    kinds = {kind_of(test["source"]) for test in tests if test["outcome"] == "passed" and test.get("source")}
    return next((kind for kind in _WORST_FIRST if kind in kinds), "not offered")


def kinds(facts: Iterable[Facts]) -> dict[str, Kind]:
    """By entry, the worst way in which a test that passed was served."""
    found: dict[str, set[Kind]] = defaultdict(set)
    for test in facts:
        if test["outcome"] == "passed" and test.get("source"):
            found[test["op"]].add(kind_of(test["source"]))
    return {op: next(kind for kind in _WORST_FIRST if kind in of) for op, of in found.items()}


# ---- matrix ----


@dataclass(frozen=True)
class Cell:
    """One operator with one dtype in one direction.

    Attributes:
        outcome: of its test.
        kind: how it was served; None if nothing ran on the device.
    """

    outcome: Outcome
    kind: Kind | None


def matrix(facts: Iterable[Facts]) -> dict[str, dict[str, dict[Direction, Cell]]]:
    """By operator, dtype and direction, what became of it. Operators are sorted."""
    cells: dict[str, dict[str, dict[Direction, Cell]]] = defaultdict(lambda: defaultdict(dict))
    for test in facts:
        direction: Any = test["part"]
        if direction in get_args(Direction):
            source = test.get("source")
            cell = Cell(test["outcome"], None if source is None else kind_of(source))
            cells[test["op"]][test["dtype"]][direction] = cell
    return {op: dict(by_dtype) for op, by_dtype in sorted(cells.items())}


def dtypes(facts: Iterable[Facts]) -> tuple[str, ...]:
    """The dtypes in :func:`matrix`, in the order of a table's columns: floating point first, the widest first."""
    return tuple(sorted({test["dtype"] for test in facts if test["part"] in get_args(Direction)}, key=_column))


_FAMILIES = ("float", "bfloat", "complex", "int", "uint", "bool")


def _column(dtype: str) -> tuple[int, int, str]:
    family = dtype.rstrip("0123456789")
    if family not in _FAMILIES:
        return len(_FAMILIES), 0, dtype  # float8_e4m3fn and the like, which few operators have
    return _FAMILIES.index(family), -int(dtype[len(family) :] or 0), dtype


# ---- fallbacks ----


@dataclass(frozen=True)
class FallbackCost:
    """What an operator overload cost that fell back.

    Attributes:
        op: the overload.
        calls: how often.
        bytes_copied: between device and host.
        seconds: of the host, copies and waiting for the device included.
    """

    op: str
    calls: int
    bytes_copied: int
    seconds: float


def costliest_fallbacks(facts: Iterable[Facts], most: int = 10) -> tuple[FallbackCost, ...]:
    """The overloads whose fallbacks took most time, over all tests."""
    costs: dict[str, FallbackCost] = {}
    for test in facts:
        for op, (calls, copied, seconds) in test.get("fallbacks", {}).items():
            before = costs.get(op, FallbackCost(op, 0, 0, 0.0))
            costs[op] = FallbackCost(op, before.calls + calls, before.bytes_copied + copied, before.seconds + seconds)
    return tuple(sorted(costs.values(), key=lambda cost: (-cost.seconds, -cost.bytes_copied, cost.op))[:most])


# ---- times ----

_FEWEST_TIMES = 3
_LEAST_RATIO = 3.0
_TIMED = ("forward", "noncontiguous", "backward")
"""The parts of a test that time the operator itself."""


@dataclass(frozen=True)
class Slowness:
    """How many times the CPU's time an operator's calls take.

    Attributes:
        op: the entry.
        lowest, median, highest: of its tests.
        tests: how many these are.
    """

    op: str
    lowest: float
    median: float
    highest: float
    tests: int


def slowest(facts: Iterable[Facts], most: int = 20) -> list[Slowness]:
    """The entries whose calls took longest against the CPU's, by the lowest ratio that a test of them has.

    Both were timed under the same load, but not at the same moment: what is not three times as long in each of at least
    three tests noise may explain, and is left out.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for test in facts:
        if test["part"] in _TIMED and test["outcome"] == "passed" and "times_cpu" in test:
            ratios[test["op"]].append(test["times_cpu"])
    found = [
        Slowness(op, min(times), median(times), max(times), len(times))
        for op, times in ratios.items()
        if len(times) >= _FEWEST_TIMES and min(times) >= _LEAST_RATIO
    ]
    return sorted(found, key=lambda entry: -entry.lowest)[:most]


_LEAST_AGAINST_FALLBACK = 1.5


@dataclass(frozen=True)
class SlowKernel:
    """A kernel of the device library that takes longer than the CPU does with its copies, in milliseconds of one call.

    Attributes:
        op: the entry.
        dtype: of the test in which the two are nearest.
        kernel, fallback: how long each takes there.
    """

    op: str
    dtype: str
    kernel: float
    fallback: float


def slow_kernels(facts: Iterable[Facts]) -> list[SlowKernel]:
    """The entries whose kernels take longer than the fallback would in every test of them, the slowest first.

    Each is the shortest of some calls; less than half as long again noise may explain.
    """
    tests: dict[str, list[SlowKernel]] = defaultdict(list)
    for test in facts:
        if "fallback_milliseconds" in test and test["outcome"] == "passed":
            times = (test["milliseconds"], test["fallback_milliseconds"])
            tests[test["op"]].append(SlowKernel(test["op"], test["dtype"], *times))
    nearest = (min(of_op, key=_against_fallback) for of_op in tests.values())
    found = (entry for entry in nearest if _against_fallback(entry) >= _LEAST_AGAINST_FALLBACK)
    return sorted(found, key=_against_fallback, reverse=True)


def _against_fallback(entry: SlowKernel) -> float:
    return entry.kernel / max(entry.fallback, 1e-9)
