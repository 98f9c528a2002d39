"""Programs that are started as copies of a process that has imported what takes seconds."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_conformance import modules
from torch_conformance.processes import ForkServer, clean_environment


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    found = ForkServer(clean_environment(), "import decimal")
    yield found
    found.close()


def _run(words: list[str], given: str = "", **how: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False, **how)


def run(server: ForkServer, code: str) -> "subprocess.CompletedProcess[str]":
    return _run([*modules.interpreter(server.place), "-c", code])


def test_a_program_is_as_python_runs_it(server: ForkServer, tmp_path: Path) -> None:
    code = "import os, sys; print(__name__, sys.argv, os.getcwd(), os.environ, sys.warnoptions, input(), sys.path[0])"
    environment = {"HOME": "/nowhere", "PYTHONPATH": "/somewhere"}
    arguments = ("-u", "-W", "error", "-c", code, "-x", "y")
    ours, pythons = (
        _run([*words, *arguments], given="said\n", cwd=tmp_path, env=environment).stdout
        for words in (modules.interpreter(server.place), [sys.executable])
    )
    assert pythons
    assert ours.replace("'LC_CTYPE': 'C.UTF-8', ", "") == pythons.replace("'LC_CTYPE': 'C.UTF-8', ", "")


def test_it_has_what_the_server_has_imported(server: ForkServer) -> None:
    said = run(server, "import sys; print('decimal' in sys.modules, 'fractions' in sys.modules)").stdout
    assert said == "True False\n"


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_it_ends_as_it_would_by_itself(server: ForkServer, code: str, status: int, said: str) -> None:
    process = run(server, code)
    assert process.returncode == status
    assert said in process.stderr


SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def _ends(process: int) -> bool:
    for _ in range(200):
        try:
            if (Path("/proc") / str(process) / "stat").read_text().split(") ")[1][0] in "ZX":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_several_run_at_a_time_and_end_with_who_has_started_them(server: ForkServer) -> None:
    command = [*modules.interpreter(server.place), "-c", SLEEP]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    programs = []
    for client in clients:
        assert client.stdout is not None
        programs.append(int(client.stdout.readline()))
    for client, program in zip(clients, programs, strict=True):
        with client:
            client.kill()
        assert _ends(program)
    assert run(server, "print(1)").stdout == "1\n"


def test_they_end_with_the_server_whose_folder_may_have_a_long_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 40)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    server = ForkServer(dict(os.environ), "pass")
    with subprocess.Popen([*modules.interpreter(server.place), "-c", SLEEP], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        program = int(client.stdout.readline())
        server.close()
        assert _ends(program)
        assert client.wait(60) != 0
