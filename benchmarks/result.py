"""What a benchmark returns, and how it is shown."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.timer import Comparison

Unit = Literal["ns", "us", "ms", "GB/s"]
_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3}


@dataclass(frozen=True)
class Row:
    """One measurement. ``ratio`` is device over native, of times (less is better) or rates (more is better)."""

    name: str
    ratio: float
    device: float | None = None
    native: float | None = None
    unit: Unit | None = None


def time_row(name: str, comparison: Comparison, unit: Literal["ns", "us", "ms"]) -> Row:
    """Times of one call."""
    scale = _PER_SECOND[unit]
    return Row(name, comparison.ratio, comparison.device_s * scale, comparison.native_s * scale, unit)


def rate_row(name: str, comparison: Comparison, size_bytes: int) -> Row:
    """Bytes moved per second."""
    gigabytes = size_bytes / 1e9
    return Row(name, 1 / comparison.ratio, gigabytes / comparison.device_s, gigabytes / comparison.native_s, "GB/s")


def geomean_row(rows: Iterable[Row]) -> Row:
    """The geometric mean of the rows' ratios."""
    logs = [math.log(row.ratio) for row in rows]
    return Row("geomean", math.exp(sum(logs) / len(logs)))


def table(rows: Iterable[Row]) -> str:
    """The rows as text."""
    lines = [f"{'':<28}{'device':>12}{'native':>12}  {'':<6}{'ratio':>6}"]
    for row in rows:
        numbers = "".join(f"{value:>12,.1f}" if value is not None else " " * 12 for value in (row.device, row.native))
        lines.append(f"{row.name:<28}{numbers}  {row.unit or '':<6}{row.ratio:>6.2f}")
    return "\n".join(lines)
