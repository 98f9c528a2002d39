"""What was measured, for people and programs, and what two such reports differ in."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch_conformance.measure.timing import Time

KIND = "measurements"
"""Tells the JSON from a report of tests."""

_NOISE = 0.05  # beyond what the spread of both runs explains


@dataclass(frozen=True)
class Row:
    """One thing that was measured.

    Attributes:
        part: "calls", "kernels" or "models".
        name: in its part.
        times: seconds a call by device.
        errors: by device that has no time, why.
        bytes: that a call reads and writes at least; 0 where that says nothing.
        served: of models, calls of operators by who served them: "native", "fallback".
    """

    part: str
    name: str
    times: Mapping[str, Time] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    served: Mapping[str, int] = field(default_factory=dict)

    def ratio(self, device: str, against: str) -> float | None:
        """How many times as long the device takes; None if one of them has no time."""
        ours, theirs = self.times.get(device), self.times.get(against)
        return ours.median / theirs.median if ours and theirs else None


@dataclass(frozen=True)
class Measurements:
    """A run.

    Attributes:
        device: its torch name.
        against: the device it was compared with; None without one.
        facts: what was measured where: "torch", the name of each device, "load" of the machine.
        rows: what was measured.
    """

    device: str
    against: str | None
    facts: Mapping[str, str]
    rows: Sequence[Row]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON's types."""
        return {"kind": KIND, "version": 1, **asdict(self)}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> "Measurements":
        """From what :meth:`to_json` gave. Raises ValueError if it is no such report."""
        try:
            if text["kind"] != KIND:
                raise KeyError(text["kind"])
            rows = [
                Row(**{**row, "times": {name: Time(**one) for name, one in row["times"].items()}})
                for row in text["rows"]
            ]
            return cls(text["device"], text["against"], text["facts"], rows)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"It is no report of `torch-conformance measure --json`: {error!r}.") from None


@dataclass(frozen=True)
class Difference:
    """What became slower or faster.

    Attributes:
        what: part and name.
        ratio: new time by old time.
        is_worse: whether it takes longer.
    """

    what: str
    old: Time
    new: Time
    ratio: float

    @property
    def is_worse(self) -> bool:
        """Whether the new one takes longer."""
        return self.ratio > 1


def differences(old: Measurements, new: Measurements) -> list[Difference]:
    """The rows whose times on the measured device differ by more than both spreads explain, the worst first."""
    before = {(row.part, row.name): row.times.get(old.device) for row in old.rows}
    found = []
    for row in new.rows:
        was, now = before.get((row.part, row.name)), row.times.get(new.device)
        if was is None or now is None:
            continue
        ratio = now.median / was.median
        apart = now.low > was.high or now.high < was.low
        if apart and abs(ratio - 1) > _NOISE:
            found.append(Difference(f"{row.part}: {row.name}", was, now, ratio))
    return sorted(found, key=lambda difference: -difference.ratio)
