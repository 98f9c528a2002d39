"""Fresh processes for tests, without the seconds that it takes to import torch: copies of one that has imported it.

A conftest.py that imports :func:`run_python` and :func:`template` has them as fixtures.
"""

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from torch_conformance import fork_server, modules, patience

RunPython = Callable[..., subprocess.CompletedProcess[str]]


class ForkServer:
    """A process that has imported what takes seconds; Python programs are started as copies of it. It ends with this.

    A program that is killed, or crashes, ends as it would have done by itself; several may run at a time.
    """

    def __init__(self, environment: Mapping[str, str], preparation: str = "import torch") -> None:
        """``preparation`` is code that it runs first, once, in ``environment``. No device loads itself there."""
        self._folder = tempfile.TemporaryDirectory(prefix="torch-conformance-")
        self._socket = Path(self._folder.name) / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            folder = os.open(self._folder.name, os.O_RDONLY | os.O_DIRECTORY)
            listener.bind(f"/proc/self/fd/{folder}/{self._socket.name}")  # as fork_client.py connects, of any length
            os.close(folder)
            listener.listen(128)  # who comes before it is ready waits
            self._process = subprocess.Popen(
                [sys.executable, fork_server.__file__, str(listener.fileno()), preparation],
                env={**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )

    @property
    def place(self) -> str:
        """For :func:`torch_conformance.modules.interpreter`, and for the environment of who uses it."""
        return str(self._socket)

    def close(self) -> None:
        """End it, and the programs that it runs."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
        self._folder.cleanup()


class Template:
    """Runs code in copies of a process that has imported torch and more."""

    def __init__(self, folder: Path, environment: Mapping[str, str], preparation: str = "import torch") -> None:
        """``folder`` is for what the copies print; the rest is :class:`ForkServer`'s, which is started when needed."""
        self._folder = folder
        self._environment = dict(environment)
        self._preparation = preparation
        self._server: ForkServer | None = None
        self._lock = threading.Lock()

    def run(
        self,
        code: str,
        environment: Mapping[str, str],
        *,
        folder: str | os.PathLike[str] = ".",
        warnings: Sequence[str] = (),
        seconds: int = 240,
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``code`` in ``folder`` as `python -W WARNING -c CODE` would.

        After ``seconds`` it is killed; of an idle machine, on a busy one later.
        """
        with self._lock:
            if self._server is None:
                self._server = ForkServer(self._environment, self._preparation)
        # Files, as what a program leaves running would keep pipes open.
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            files = [Path(place) / name for name in ("stdout", "stderr")]
            with files[0].open("wb") as output, files[1].open("wb") as errors:
                words = [part for warning in warnings for part in ("-W", warning)]
                process = subprocess.Popen(
                    [*modules.interpreter(self._server.place), *words, "-c", code],
                    cwd=folder,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                )
                try:
                    process.wait(patience.seconds(seconds))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            said = [file.read_text(encoding="utf-8", errors="replace") for file in files]
        return subprocess.CompletedProcess([sys.executable, "-c", code], process.returncode, *said)

    def run_pytest(
        self, arguments: Sequence[str], settings: Mapping[str, str], seconds: int
    ) -> "subprocess.CompletedProcess[str]":
        """Run pytest in the template's environment with ``settings``."""
        code = f"import sys, pytest\nsys.exit(pytest.main({list(arguments)!r}))"
        return self.run(code, {**self._environment, **settings}, seconds=seconds)

    def close(self) -> None:
        """End the process, and what it runs."""
        if self._server is not None:
            self._server.close()


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that configures a device, and with none chosen.

    A vendor's package that is installed would be active wherever nothing is chosen.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("TORCH_BACKEND") and key not in {"TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONWARNINGS"}
    }
    return kept | NO_DEVICE


NO_DEVICE = {"TORCH_BACKEND": "none"}
UNASKED = {"TORCH_BACKEND": None}
"""For ``env`` of run_python: the device that is installed, whichever that is."""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A process that has imported torch, and pytest, which most code that tests run needs."""
    process = Template(tmp_path_factory.mktemp("processes"), clean_environment(), "import pytest, torch")
    yield process
    process.close()


@pytest.fixture(scope="session")
def run_python(template: Template) -> RunPython:
    """Run code in a fresh interpreter: ``run_python(code, env={...}, packages=[directories], warnings=["error"])``.

    The environment asks for no device unless ``env`` does; a variable that is None there is not set. Fails the test if
    the exit code is not ``expect``.
    """

    def run(
        code: str,
        *,
        env: Mapping[str, str | os.PathLike[str] | None] | None = None,
        packages: Sequence[Path] = (),
        warnings: Sequence[str] = (),
        expect: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        wanted = {**clean_environment(), **(env or {})}
        environment = {key: os.fspath(value) for key, value in wanted.items() if value is not None}
        folders = [*map(str, packages), *filter(None, [environment.get("PYTHONPATH")])]
        if folders:
            environment["PYTHONPATH"] = os.pathsep.join(folders)
        process = template.run(textwrap.dedent(code), environment, warnings=warnings)
        assert process.returncode == expect, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
        return process

    return run
