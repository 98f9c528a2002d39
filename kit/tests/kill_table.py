"""Which test of the conformance kit catches each broken device: ``python kit/tests/kill_table.py`` prints a table.

Arguments are pytest's: ``-k collectives``, ``-n 4``.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest
from broken_operators import BROKEN
from faulty_devices import FAULTY_DEVICES

HERE = Path(__file__).parent
VERDICTS = {"passed": "killed", "failed": "ALIVE", "skipped": "not tried"}


class Table:
    """Prints a line for each broken device when its test has ended."""

    def __init__(self) -> None:
        catchers = {str(device): device.caught_by for device in FAULTY_DEVICES}
        self.catchers = catchers | {name: caught_by for name, (_, caught_by, _) in BROKEN.items()}
        self.verdicts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        device = report.nodeid.partition("[")[2].removesuffix("]")
        if report.when == "call" and device in self.catchers:
            verdict = VERDICTS[report.outcome]
            self.verdicts[verdict] += 1
            print(f"| {device} | {verdict} | {self.catchers[device]} |", flush=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (report.outcome, "", "") if report.when == "call" else None  # no dots between the lines


def main() -> int:
    """Returns pytest's exit status."""
    table = Table()
    print("| broken device | verdict | caught by |\n|---|---|---|")
    tests = [HERE / "test_faulty_devices.py", HERE / "test_broken_operators.py"]
    chosen = ["-q", "--no-header", "-p", "no:cacheprovider", "--tb=short", "-k", "is_found_and_named or is_caught"]
    status = pytest.main([*chosen, *sys.argv[1:], *map(str, tests)], plugins=[table])
    print(", ".join(f"{number} {verdict}" for verdict, number in table.verdicts.items()))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
