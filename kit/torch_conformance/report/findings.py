"""What a run found: the device, the result of each test, and, of the kit's own tests, the verdict on each level."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from torch_conformance import coverage
from torch_conformance.levels import DEVICE, LEVELS, Level, find
from torch_conformance.results import FAILURES, Result, count, failed

Verdict = Literal["passed", "failed", "not offered", "not run"]


def verdict_on(results: Iterable[Result]) -> Verdict:
    """What some results amount to."""
    counts = count(results)
    if failed(counts):
        return "failed"
    if counts["not run"] or not sum(counts.values()):
        return "not run"
    return "passed" if counts["passed"] or counts["known"] else "not offered"


@dataclass(frozen=True)
class DeviceDescription:
    """The device that was checked.

    Attributes:
        name: the torch device name; the argument of the run if the device could not be opened.
        vendor, version: of the device library, as it says.
        path: of the device library; None if it is not known.
        properties: of each device, as ``torch-backend info --json`` prints them.
        error: why torch levels could not run; None if the device works.
    """

    name: str
    vendor: str = ""
    version: str = ""
    path: str | None = None
    tables: tuple[str, ...] = ()
    properties: tuple[Mapping[str, Any], ...] = ()
    torch: str = ""
    torch_backend: str = ""
    error: str | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "DeviceDescription":
        """From what :func:`torch_backend.diagnosis.steps.use_in_torch` tells of a device that works."""
        return cls(
            name=answer["name"],
            vendor=answer["vendor"],
            version=answer["version"],
            path=answer["path"],
            tables=tuple(answer["tables"]),
            properties=tuple(answer["devices"]),
            torch=answer["torch"],
            torch_backend=answer["torch_backend"],
        )


@dataclass(frozen=True, kw_only=True)
class Findings(ABC):
    """What a run of any tests found.

    Attributes:
        device: what was checked.
        results: of every test that was asked for.
        problems: what is wrong with the run or the expectations, each a readable text; any makes the run fail.
        seconds: how long the run took.
        run: when, where and by what it was started: "date", "host", "python", "command".
        quick: whether tests that take long were left out.
        only: the patterns that chose tests; empty for all.
        options: what the device library was given.
    """

    device: DeviceDescription
    results: tuple[Result, ...]
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    run: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    only: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is unexplained."""
        return not self.problems and not self.failures

    @property
    def failures(self) -> list[Result]:
        """The results that nothing explains."""
        return [result for result in self.results if result.outcome in FAILURES]

    @abstractmethod
    def groups(self) -> dict[str, list[Result]]:
        """The results by what the report's tables have a line for."""

    @abstractmethod
    def verdict_text(self) -> str:
        """What the run comes to, in a sentence."""

    def not_offered(self) -> list[tuple[str, int]]:
        """What the device does not offer: reason, number of tests, the most first."""
        return Counter(result.message for result in self.results if result.outcome == "not offered").most_common()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON's types. ``version`` changes when a key changes its meaning or goes."""
        return {
            "version": 1,
            "device": asdict(self.device),
            "ok": self.ok,
            "problems": list(self.problems),
            "seconds": round(self.seconds, 3),
            "run": dict(self.run),
            "results": [asdict(result) for result in self.results],
        }


@dataclass(frozen=True, kw_only=True)
class Report(Findings):
    """What a run of the kit's own tests found.

    Attributes:
        levels: those that were asked for.
    """

    levels: tuple[Level, ...] = LEVELS

    def groups(self) -> dict[str, list[Result]]:
        """The results by the name of their level."""
        return {level.name: self.of_level(level) for level in self.levels}

    def of_level(self, level: Level) -> list[Result]:
        """The results of one level."""
        return [result for result in self.results if result.level == level]

    def verdict(self, level: Level) -> Verdict:
        """What the results of a level amount to."""
        return verdict_on(self.of_level(level))

    def not_offered(self) -> list[tuple[str, int]]:
        """What the device does not offer: level and reason, number of tests, the most first."""
        reasons = Counter(
            f"of {result.level.name}: {result.message}" for result in self.results if result.outcome == "not offered"
        )
        return reasons.most_common()

    @property
    def reached(self) -> Level | None:
        """The highest level that passed with nothing failed or missing below it.

        A level that the device does not offer is no obstacle. None if there is no such level, and for a run of chosen
        tests, which proves no level.
        """
        reached = DEVICE if self.verdict(DEVICE) == "passed" else None
        if self.only or self.verdict(DEVICE) == "failed":
            return None
        for level in LEVELS:
            match self.verdict(level):
                case "passed":
                    reached = level
                case "failed" | "not run":
                    break
        return reached

    def verdict_text(self) -> str:  # noqa: D102  # as above
        if self.only and not self.ok:
            return "Not all of these tests pass."
        if self.only:
            offered = any(result.outcome != "not offered" for result in self.results if result.level != DEVICE)
            return "These tests pass." if offered else "The device offers nothing that these tests are about."
        if (reached := self.reached) is not None:
            return f"Level reached: {reached.number} ({reached.name}): {reached.means}."
        return "No level is reached." if self.failures else "No level is reached: not all of its tests were run."

    @classmethod
    def from_json(cls, report: Mapping[str, Any]) -> "Report":
        """From what :meth:`to_json` gave, of this version or an older one.

        Raises ValueError if it is no such report.
        """
        try:
            device: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in report["device"].items()
            }
            return cls(
                device=DeviceDescription(**device),
                results=tuple(Result(**result) for result in report["results"]),
                problems=tuple(report["problems"]),
                seconds=report["seconds"],
                run=report.get("run", {}),
                levels=tuple(find(level["name"]) for level in report["levels"]),
                quick=report["quick"],
                only=tuple(report["only"]),
                options=report["options"],
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"It is no report of `torch-backend check --json`: {error!r}.") from None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON's types."""
        facts = coverage.facts_of(self.results)
        return super().to_json() | {
            "level_reached": self.reached.number if self.reached else 0,
            "levels": [
                {
                    "number": level.number,
                    "name": level.name,
                    "means": level.means,
                    "verdict": self.verdict(level),
                    "counts": dict(count(self.of_level(level))),
                    "seconds": round(sum(result.seconds for result in self.of_level(level)), 3),
                }
                for level in self.levels
            ],
            "operators": coverage.entries_by_standing(facts),
            "costliest_fallbacks": [asdict(cost) for cost in coverage.costliest_fallbacks(facts)],
            "quick": self.quick,
            "only": list(self.only),
            "options": dict(self.options),
        }
