"""Fresh processes for tests, without the seconds that it takes to import torch: copies of one that has imported it.

A conftest.py that imports :func:`run_python` and :func:`template` has them as fixtures.
"""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

RunPython = Callable[..., subprocess.CompletedProcess[str]]

# The copy goes on as `python -c CODE` in the environment that the test asked for, and ends as an interpreter does. Its
# first `import torch` takes what is there already, and looks for devices as torch does at the end of its own.
_TEMPLATE = """
import gc, importlib.abc, importlib.machinery, json, os, signal, sys, warnings

class _Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self.hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"}
        self.spec, self.loader = self.hidden["torch"].__spec__, self.hidden["torch"].__loader__
        for name in self.hidden:
            del sys.modules[name]

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "torch" else None

    def create_module(self, spec):
        return self.hidden["torch"]

    def exec_module(self, module):
        sys.meta_path.remove(self)
        sys.modules.update(self.hidden)
        module.__spec__, module.__loader__ = self.spec, self.loader
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()

def _next_request():
    while line := sys.stdin.readline():
        if os.fork() == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    sys.exit()

exec(sys.argv.pop(1))
gc.freeze()
_request = _next_request()
signal.alarm(_request["seconds"])
os.environ.clear()
os.environ.update(_request["environment"])
os.chdir(_request["folder"])
sys.path[1:1] = _request["packages"]
sys.warnoptions += _request["warnings"]
warnings._processoptions(_request["warnings"])
for _descriptor, _path in enumerate((os.devnull, *_request["output"])):
    os.dup2(os.open(_path, os.O_RDWR | os.O_CREAT), _descriptor)
if "torch" in sys.modules:
    sys.meta_path.insert(0, _Imported())
exec(_request["code"])
"""


def _search_path(environment: Mapping[str, str]) -> list[str]:
    return [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]


class Template:
    """A process that has imported what takes seconds, and runs code in copies of itself, one at a time."""

    def __init__(self, folder: Path, environment: Mapping[str, str], preparation: str = "import torch") -> None:
        """``folder`` is for what the copies print; ``preparation`` is code that the template runs first, once."""
        self._folder = folder
        self._environment = dict(environment)
        self._preparation = preparation
        self._process: subprocess.Popen[str] | None = None
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

        A copy that takes longer than ``seconds`` ends with SIGALRM. What reads the environment when torch loads it, as
        OpenMP's library does, has read that of the template.
        """
        output = [self._folder / name for name in ("stdout", "stderr")]
        request = {
            "code": code,
            "environment": dict(environment),
            "packages": [place for place in _search_path(environment) if place not in _search_path(self._environment)],
            "folder": os.path.abspath(folder),
            "warnings": list(warnings),
            "seconds": seconds,
            "output": [str(file) for file in output],
        }
        with self._lock:
            for file in output:
                file.unlink(missing_ok=True)
            status = self._ask(json.dumps(request))
            stdout, stderr = (file.read_text(encoding="utf-8", errors="replace") for file in output)
        return subprocess.CompletedProcess([sys.executable, "-c", code], status, stdout, stderr)

    def run_pytest(
        self, arguments: Sequence[str], settings: Mapping[str, str], seconds: int
    ) -> "subprocess.CompletedProcess[str]":
        """Run pytest in the template's environment with ``settings``."""
        code = f"import sys, pytest\nsys.exit(pytest.main({list(arguments)!r}))"
        return self.run(code, {**self._environment, **settings}, seconds=seconds)

    def _ask(self, request: str) -> int:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _TEMPLATE, self._preparation],
                env={**self._environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the template. A copy that runs goes on."""
        if self._process is not None:
            with self._process as process:
                assert process.stdin is not None
                process.stdin.close()


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that chooses or configures a device."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("TORCH_BACKEND") and key not in {"TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONWARNINGS"}
    }


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A process that has imported torch, and pytest, which most code that tests run needs."""
    process = Template(tmp_path_factory.mktemp("processes"), clean_environment(), "import pytest, torch")
    yield process
    process.close()


@pytest.fixture(scope="session")
def run_python(template: Template) -> RunPython:
    """Run code in a fresh interpreter: ``run_python(code, env={...}, packages=[directories], warnings=["error"])``.

    The environment names no device unless ``env`` does. Fails the test if the exit code is not ``expect``.
    """

    def run(
        code: str,
        *,
        env: Mapping[str, str | os.PathLike[str]] | None = None,
        packages: Sequence[Path] = (),
        warnings: Sequence[str] = (),
        expect: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        environment = clean_environment() | {key: os.fspath(value) for key, value in (env or {}).items()}
        folders = [*map(str, packages), *filter(None, [environment.get("PYTHONPATH")])]
        if folders:
            environment["PYTHONPATH"] = os.pathsep.join(folders)
        process = template.run(textwrap.dedent(code), environment, warnings=warnings)
        assert process.returncode == expect, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
        return process

    return run
