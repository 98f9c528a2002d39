"""What a run found: the device, the result of each test, and, of the kit's own tests, the verdict on each level."""

import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from torch_conformance import coverage
from torch_conformance.causes import by_cause
from torch_conformance.levels import DEVICE, LEVELS, Level, find
from torch_conformance.results import FAILURES, Result, count, failed

Verdict = Literal["passed", "failed", "not offered", "not run"]


def verdict_on(results: Iterable[Result]) -> Verdict:
    """What some results amount to."""
    counts = count(results)
    if failed(counts):
        return "failed"
    if counts["not run"] or counts["skipped"] or not sum(counts.values()):
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
        is_library: whether torch_backend brings it to PyTorch; else it is a device that PyTorch has by itself.
        features: of such a one, by the name of a feature why it has not got it, or None where it has.
        dtypes: of such a one, those that it stores.
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
    is_library: bool = True
    features: Mapping[str, str | None] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()

    def levels(self) -> tuple[Level, ...]:
        """The levels that there are for it."""
        return tuple(level for level in LEVELS if level.needs_torch or self.is_library)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DeviceDescription":
        """From what ``asdict`` and JSON made of it."""
        given: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in fields.items()}
        return cls(**given)

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
        skip: the patterns of tests that were left out.
        named: whether single tests were chosen, such as those that failed before.
        options: what the device library was given.
        imports: the modules that were imported, for the device or for its kernels.
        again: a command that runs tests on the device again; empty if there is none. See :meth:`command_for`.
    """

    device: DeviceDescription
    results: tuple[Result, ...]
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    run: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    named: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    again: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is unexplained."""
        return not self.problems and not self.failures

    @property
    def failures(self) -> list[Result]:
        """The results that nothing explains."""
        return [result for result in self.results if result.outcome in FAILURES]

    @property
    def is_partial(self) -> bool:
        """Whether tests were chosen, so that the others are not judged."""
        return bool(self.only) or self.named

    def command_for(self, test: str) -> str:
        """A command that runs just this test; empty if there is none."""
        return f"{self.again} --only {shlex.quote(test)}" if self.again else ""

    def who_served(self) -> str:
        """What is known of who served operators, in a sentence."""
        if self.device.is_library:
            return "As torch_backend has counted every call: exact."
        return "As PyTorch's profiler and dispatch table tell: the number of fallbacks is a lower bound."

    def causes(self) -> list[tuple[str, list[Result]]]:
        """The failures by cause, the most frequent first."""
        return by_cause(self.results)

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
            "quick": self.quick,
            "only": list(self.only),
            "skip": list(self.skip),
            "named": self.named,
            "imports": list(self.imports),
            "again": self.again,
            "causes": {text: [result.test for result in results] for text, results in self.causes()},
            "results": [asdict(result) for result in self.results],
        }


@dataclass(frozen=True, kw_only=True)
class Report(Findings):
    """What a run of the kit's own tests found.

    Attributes:
        levels: those that were asked for.
        suite: a hash of the tests, see :mod:`torch_conformance.fingerprint`; empty if it is not known.
    """

    levels: tuple[Level, ...] = LEVELS
    suite: str = ""

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
        if self.is_partial or self.verdict(DEVICE) == "failed":
            return None
        for level in self.device.levels():
            match self.verdict(level):
                case "passed":
                    reached = level
                case "failed" | "not run":
                    break
        return reached

    def verdict_text(self) -> str:  # noqa: D102  # as above
        if self.is_partial and not self.ok:
            return "Not all of these tests pass."
        if self.is_partial:
            counts = count(result for result in self.results if result.level != DEVICE)
            if counts["passed"] or counts["known"]:
                return "These tests pass."
            why = (
                "All of these tests are skipped."
                if counts["skipped"]
                else "The device offers nothing that these tests are about."
            )
            return why
        if (reached := self.reached) is not None:
            level = f"{reached.number} ({reached.name}): {self._means(reached)}"
            return f"Level reached: {level}.{self.served_text()}{self._share_not_offered(reached)}"
        return "No level is reached." if self.failures else "No level is reached: not all of its tests were run."

    def _means(self, level: Level) -> str:
        if level == DEVICE and not self.device.is_library:  # which the doctor does not know
            return "the device is there, and torch computes with it"
        return level.means

    def served_text(self) -> str:
        """What a level does not say: who serves how many of the operators. Empty if none were tested."""
        shares = coverage.shares(coverage.facts_of(self.results))
        text = ", ".join(f"{kind} {share}%" for kind, share in shares.items())
        return f" Operators: {text}." if text else ""

    def _share_not_offered(self, reached: Level) -> str:
        """What a level that is reached does not say: how many of the tests up to it do not apply."""
        results = [result for result in self.results if DEVICE.number < result.level.number <= reached.number]
        number = count(results)["not offered"]
        return f" Of the tests up to it {number:,} of {len(results):,} are not offered." if number else ""

    @classmethod
    def from_json(cls, report: Mapping[str, Any]) -> "Report":
        """From what :meth:`to_json` gave, of this version or an older one.

        Raises ValueError if it is no such report.
        """
        try:
            return cls(
                device=DeviceDescription.from_json(report["device"]),
                results=tuple(Result(**result) for result in report["results"]),
                problems=tuple(report["problems"]),
                seconds=report["seconds"],
                run=report.get("run", {}),
                levels=tuple(find(level["name"]) for level in report["levels"]),
                quick=report["quick"],
                only=tuple(report["only"]),
                options=report["options"],
                skip=tuple(report.get("skip", ())),
                named=report.get("named", False),
                imports=tuple(report.get("imports", ())),
                again=report.get("again", ""),
                suite=report.get("suite", ""),
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
            "who_served": self.who_served(),
            "costliest_fallbacks": [asdict(cost) for cost in coverage.costliest_fallbacks(facts)],
            "options": dict(self.options),
            "suite": self.suite,
        }
