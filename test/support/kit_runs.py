"""Runs of the conformance kit's tests in processes that have imported what they need."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fixtures import clean_environment
from torch_conformance.levels import SUITE, level_of
from torch_conformance.processes import Template

Templates = Mapping[bool, Template]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Templates]:
    """By whether torch is needed: processes that have imported what tests need."""
    environment = clean_environment() | {
        "CI": "1",  # where pytest shows differences in full, which takes minutes for large values
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    bare = "import pytest, torch_conformance"
    # What PyTorch's list of operators imports that asks for no device.
    torch = f"{bare}, torch, torch._dynamo.device_interface, scipy.signal"
    found = {
        needs_torch: Template(tmp_path_factory.mktemp("runs"), environment, preparation)
        for needs_torch, preparation in ((False, bare), (True, torch))
    }
    yield found
    for template in found.values():
        template.close()


def run_tests(
    templates: Templates, plugin: Path, environment: dict[str, str], paths: list[Path], tmp_path: Path, *arguments: str
) -> tuple[int, str]:
    """Run the kit's tests in ``paths`` on the plugin's device: pytest's exit code and what it printed."""
    kit = ["-q", "-rf", "-c", str(SUITE / "pytest.ini"), "-p", "torch_conformance.pytest_plugin"]
    kit += ["--device", str(plugin), "--run-dir", str(tmp_path), *arguments, *map(str, paths)]
    level = level_of(paths[0].relative_to(SUITE).as_posix())
    process = templates[level.needs_torch].run_pytest(kit, environment)
    return process.returncode, process.stdout + process.stderr
