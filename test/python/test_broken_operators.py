"""The conformance kit catches devices that are broken above their library, and its failures name the fault."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broken_operators import BROKEN
from conftest import clean_environment

from torch_backend.testing.levels import SUITE

Run = Callable[..., tuple[int, str]]

# Runs pytest in a copy of itself for each line it reads, so that what takes long is imported once.
SERVER = """
import json, os, signal, sys
from torch_backend.devices.suppression import suppressed
with suppressed():
    import torch
import pytest, torch._dynamo.device_interface

for line in sys.stdin:
    request = json.loads(line)
    if os.fork() == 0:
        signal.alarm(100)
        os.environ.update(request["environment"])
        os.dup2(os.open(request["output"], os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        status = pytest.main(request["arguments"])
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def run_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run pytest in a process of its own: ``run_pytest(arguments, {...})`` -> exit code and output."""
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = clean_environment() | {"PYTHONPATH": here, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, answers = server.stdin, server.stdout

        def run(arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
            output = tmp_path_factory.mktemp("run") / "output"
            request = {"arguments": arguments, "environment": environment, "output": str(output)}
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            return int(answers.readline()), output.read_text(encoding="utf-8")

        yield run
        requests.close()


@pytest.mark.parametrize("name", BROKEN)
def test_broken_device_is_caught(run_pytest: Run, name: str) -> None:
    _, caught_by, words = BROKEN[name]
    kit = ["-q", "-rf", "-c", str(SUITE / "pytest.ini"), "-p", "torch_backend.testing.pytest_plugin"]
    broken = ["--device", "xcpu", "--import", "broken_operators", "--only", caught_by]
    status, output = run_pytest([*kit, *broken, str(SUITE / caught_by.split("::")[0])], {"TORCH_BACKEND_BROKEN": name})
    assert status == 1, output
    assert "1 failed" in output.splitlines()[-1], output
    assert words in output
