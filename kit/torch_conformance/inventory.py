"""Which tests there are, and which of them every device has to pass."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_conformance import modules, routes
from torch_conformance.levels import SUITE, Level, level_of
from torch_conformance.routes import Route


@dataclass(frozen=True)
class Entry:
    """A test of the suite.

    Attributes:
        test: its id.
        proves: what its passing proves of the device.
        needs: of what it says with :mod:`torch_conformance.needs` that it needs, kind and value.
    """

    test: str
    proves: str
    needs: tuple[tuple[str, str | int], ...]

    @property
    def level(self) -> Level:
        """The level it belongs to."""
        return level_of(self.test)

    @property
    def must_pass(self) -> bool:
        """Whether no device may be without what it is about. Of dtypes, that is for those that a device declares."""
        return all(kind == "dtype" for kind, _ in self.needs)


def of_suite(route: Route, levels: Sequence[Level]) -> list[Entry]:
    """The tests of these levels, as they are made for a device, by level and id.

    Raises ValueError if they cannot be loaded there, with what pytest says.
    """
    files = [str(file) for level in levels if level.needs_torch for file in level.files()]
    if not files:
        return []
    with tempfile.TemporaryDirectory(prefix="torch-conformance-list-") as directory:
        options = ["--quiet", "--collect-only", "-c", str(SUITE / "pytest.ini"), "--rootdir", str(SUITE)]
        options += ["-p", "torch_conformance.pytest_plugin", "--device", routes.text_of(route), "--run-dir", directory]
        process = subprocess.run(
            modules.command("pytest", *options, *files),
            env={**route.environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        written = Path(directory) / "collected-main.json"
        if process.returncode != 0 or not written.is_file():
            said = "\n".join((process.stdout + process.stderr).strip().splitlines()[-20:])
            code = process.returncode
            raise ValueError(f"The tests cannot be loaded on '{route.device}' (pytest ended with {code}):\n{said}")
        collected = json.loads(written.read_text(encoding="utf-8"))
    entries = [
        Entry(test, proves, tuple((kind, value) for kind, value in collected["needs"][test]))
        for test, proves in collected["proves"].items()
    ]
    return sorted(entries, key=lambda entry: (entry.level.number, entry.test))
