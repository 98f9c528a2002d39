"""The conformance kit catches devices that are broken above their library, and its failures name the fault."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_operators import BROKEN
from fixtures import clean_environment
from template_process import Template
from torch_conformance.levels import SUITE


@pytest.fixture(scope="module")
def kit_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = clean_environment() | {"PYTHONPATH": here, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    # What PyTorch's list of operators imports that asks for no device.
    prepared = "import pytest, torch._dynamo.device_interface, scipy.signal"
    process = Template(tmp_path_factory.mktemp("runs"), environment, prepared)
    yield process
    process.close()


@pytest.mark.parametrize("name", BROKEN)
def test_broken_device_is_caught(kit_template: Template, name: str) -> None:
    _, caught_by, words = BROKEN[name]
    kit = ["-q", "-rf", "-c", str(SUITE / "pytest.ini"), "-p", "torch_conformance.pytest_plugin"]
    broken = ["--device", "xcpu", "--import", "broken_operators", "--only", caught_by]
    process = kit_template.run_pytest(
        [*kit, *broken, str(SUITE / caught_by.split("::")[0])], {"TORCH_BACKEND_BROKEN": name}
    )
    assert process.returncode == 1, process.stdout
    assert "1 failed" in process.stdout.splitlines()[-1], process.stdout
    assert words in process.stdout
