"""Write what the conformance kit has found into the compatibility page: ``compatibility.py REPORT.json ...``.

Reports are those of ``torch-backend check --json``; ``make test-conformance`` leaves them in its build folder. A row of
the page for the same torch, device and options is replaced, all others stay.
"""

import json
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "compatibility.md"
HEAD = "| torch | device | tests | level reached | passed | failed | not offered |\n|---|---|---|---|---|---|---|\n"
FAILURES = ("failed", "crashed", "hung", "not run")


def row(report: dict) -> str:
    """The table's line for a report."""
    device, counts = report["device"], [level["counts"] for level in report["levels"]]
    options = ", ".join(f"`{key}={value}`" for key, value in sorted(report["options"].items()))
    reached = next((level for level in report["levels"] if level["number"] == report["level_reached"] > 0), None)
    cells = [
        device["torch"],
        f"`{device['name']}`" + (f" with {options}" if options else ""),
        ("quick" if report["quick"] else "all") + (", some" if report["only"] else ""),
        f"{reached['number']} `{reached['name']}`" if reached else "none",
        f"{sum(count['passed'] for count in counts):,}",
        str(sum(count[outcome] for count in counts for outcome in FAILURES)),
        str(sum(count["not offered"] for count in counts)),
    ]
    return f"| {' | '.join(cells)} |\n"


def key(line: str) -> list[str]:
    """What a line is about: torch, device and options, quick or all."""
    return line.split("|")[1:4]


def update(page: str, lines: list[str]) -> str:
    """The page with these lines in its table, sorted."""
    before, rest = page.split(HEAD)
    old = []
    while rest.startswith("|"):
        line, rest = rest.split("\n", 1)
        old.append(line + "\n")
    new_keys = [key(line) for line in lines]
    kept = [line for line in old if key(line) not in new_keys]
    return before + HEAD + "".join(sorted([*kept, *lines])) + rest


if __name__ == "__main__":
    found = [row(json.loads(Path(path).read_text(encoding="utf-8"))) for path in sys.argv[1:]]
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    print("".join(found), end="")
