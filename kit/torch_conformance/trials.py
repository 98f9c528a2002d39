"""Tries of the suite's tests on devices that may have a fault, in processes that have imported what the tests need.

A conftest.py that imports :func:`trials` has it as a fixture.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from torch_conformance.levels import SUITE, level_of
from torch_conformance.processes import Template, clean_environment

_FAILED = re.compile(r"^(?:FAILED|ERROR) .*?(\w+/test_\w+\.py::.+?)(?: - .*)?$", re.MULTILINE)
_BARE = "import pytest, torch_conformance"
# The last are what PyTorch's list of operators imports that asks for no device.
_TORCH = f"""{_BARE}, torch, torch._dynamo.device_interface
try: import scipy.signal
except ImportError: pass
"""


@dataclass(frozen=True)
class Trial:
    """What came of some tests.

    Attributes:
        code: pytest's exit code, or less than 0 if the process was ended.
        said: all that was printed.
    """

    code: int
    said: str

    @property
    def failed(self) -> list[str]:
        """The ids of tests that failed, as reports have them."""
        return _FAILED.findall(self.said)


class Trials:
    """Runs some of the suite's tests at a time."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is for what the processes write."""
        environment = clean_environment() | {
            "CI": "1",  # where pytest shows differences in full, which takes minutes for large values
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self._folder = folder
        self._templates: dict[bool, Template] = {}
        for needs_torch, preparation in ((False, _BARE), (True, _TORCH)):
            place = folder / ("torch" if needs_torch else "bare")
            place.mkdir(parents=True)
            self._templates[needs_torch] = Template(place, environment, preparation)

    def run(
        self, device: Path, tests: Sequence[str], environment: Mapping[str, str], *arguments: str, seconds: int = 120
    ) -> Trial:
        """Run tests of the suite on a device library.

        Args:
            device: its path.
            tests: files and folders of the suite, with a test's name behind them if one is enough.
            environment: more of it.
            arguments: more for pytest.
            seconds: after which the process is ended.
        """
        template = self._templates[any(level_of(test).needs_torch for test in tests)]
        with tempfile.TemporaryDirectory(dir=self._folder) as run_dir:
            kit = ["-q", "-rfE", "-c", str(SUITE / "pytest.ini"), "-p", "torch_conformance.pytest_plugin"]
            kit += ["--device", str(device), "--run-dir", run_dir, *arguments, *(str(SUITE / test) for test in tests)]
            process = template.run_pytest(kit, environment, seconds)
        return Trial(process.returncode, process.stdout + process.stderr)

    def close(self) -> None:
        """End the processes."""
        for template in self._templates.values():
            template.close()


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Runs tests of the kit on device libraries."""
    found = Trials(tmp_path_factory.mktemp("trials"))
    yield found
    found.close()
