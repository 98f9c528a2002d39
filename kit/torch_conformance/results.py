"""The result of each test of a run of the kit."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch_conformance.levels import Level, level_of

Outcome = Literal["passed", "failed", "crashed", "hung", "known", "not offered", "skipped", "not run"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""How a test ends. crashed, hung: it took its process along, or was stopped. known: it failed, as the device's
expectations say. not offered: the device does not declare what it tests. skipped: the command line left it out. not
run: the run ended before."""

FAILURES: frozenset[Outcome] = frozenset({"failed", "crashed", "hung"})
"""The outcomes that nothing explains."""


@dataclass(frozen=True)
class Result:
    """How one test ended.

    Attributes:
        test: its id, "tensor/test_views.py::test_a_view_shares_memory[float32]".
        outcome: how it ended.
        proves: what its passing proves about the device.
        seconds: how long it took.
        message: why it failed or is not offered, on one line.
        details: the traceback.
        facts: what the test recorded, see :mod:`torch_conformance.facts`.
    """

    test: str
    outcome: Outcome
    proves: str = ""
    seconds: float = 0.0
    message: str = ""
    details: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The level it belongs to."""
        return level_of(self.test)


def failed(counts: Mapping[Outcome, int]) -> int:
    """How many of the counted results nothing explains."""
    return sum(counts[outcome] for outcome in FAILURES)


def count(results: Iterable[Result]) -> Counter[Outcome]:
    """Results by outcome; every outcome is there."""
    counts: Counter[Outcome] = Counter(dict.fromkeys(OUTCOMES, 0))
    counts.update(result.outcome for result in results)
    return counts


def by_function(results: Iterable[Result]) -> list[tuple[str, int]]:
    """How many of the results are of each function, "tensor/test_views.py::test_a_view_shares_memory", most first.

    The tests of a class, which are made for each operator, count as those of its file.
    """
    return Counter(_function(result.test) for result in results).most_common()


def _function(test: str) -> str:
    file, *names = test.partition("[")[0].split("::")
    return "::".join([file, *names]) if len(names) < 2 else file


def totals(results: Iterable[Result]) -> str:
    """How many ended in which way: "3,675 passed, 0 failed, 327 not offered"."""
    counts = count(results)
    parts = [f"{counts['passed']:,} passed", f"{failed(counts):,} failed"]
    parts += [
        f"{counts[outcome]:,} {outcome}"
        for outcome in ("known", "not offered", "skipped", "not run")
        if counts[outcome]
    ]
    return ", ".join(parts)
