"""Fixtures of the tests in Python, of the core and of the conformance kit: their conftest.py import them."""

import functools
import inspect
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch_conformance.processes import UNASKED as UNASKED
from torch_conformance.processes import RunPython as RunPython
from torch_conformance.processes import clean_environment as clean_environment
from torch_conformance.processes import run_python as run_python
from torch_conformance.processes import template as template

import torch_backend
from torch_backend.files import installed, patience

# A shell's background jobs ignore it, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[2]
PLUGIN_SOURCES = ROOT / "test" / "plugins"
SUPPORT = Path(__file__).parent

BuildPlugin = Callable[..., Path]
VendorPackage = Callable[..., Path]
Environment = Mapping[str, str | os.PathLike[str]]


def in_process(env: Environment | Callable[..., Environment], **keywords: Any) -> Callable[..., Any]:
    """Decorate a test whose body runs in a fresh interpreter: what it is given goes there as it is printed.

    Its module is imported there first. ``env`` is the environment, or a function that makes it of fixtures;
    ``keywords`` are more for :func:`run_python`.
    """
    makes_env = env if callable(env) else lambda: env

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        own, asked = (list(inspect.signature(each).parameters) for each in (test, makes_env))

        @functools.wraps(test)
        def run(run_python: RunPython, **given: Any) -> None:
            arguments = {
                key: os.fspath(x) if isinstance(x, os.PathLike) else x for key, x in given.items() if key in own
            }
            code = f"import {test.__module__} as tests\ntests.{test.__name__}.__wrapped__(**{arguments!r})"
            packages = [Path(inspect.getfile(test)).parent, SUPPORT]
            run_python(code, env=makes_env(**{name: given[name] for name in asked}), packages=packages, **keywords)

        names = dict.fromkeys(["run_python", *own, *asked])
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return run

    return decorate


def run_program(
    *command: str | os.PathLike[str],
    cwd: Path | None = None,
    code: int = 0,
    seconds: float = 300,
    **environment: str | os.PathLike[str] | None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, ``"python"`` being this one. Its environment asks for no device unless ``environment`` does;
    a variable that is None there is not set.

    Fails the test if the exit code is not ``code``, or after ``seconds``: of an idle machine, on a busy one later.
    """
    program = [sys.executable if part == "python" else os.fspath(part) for part in command]
    wanted = {**clean_environment(), **environment}
    env = {key: os.fspath(value) for key, value in wanted.items() if value is not None}
    limit = patience.seconds(seconds)
    process = subprocess.run(program, cwd=cwd, env=env, capture_output=True, text=True, timeout=limit, check=False)
    assert process.returncode == code, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process


@pytest.fixture(scope="session")
def build_plugin(tmp_path_factory: pytest.TempPathFactory) -> BuildPlugin:
    """Compile a source of test/plugins: ``build_plugin("DEVICES=0", name="acme", file="other.so")`` -> the library.

    A device that is made of another one is built ``over`` that, and has its name unless it gets another.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    built: dict[tuple[object, ...], Path] = {}
    include = installed.include_dir()
    lists = tmp_path_factory.mktemp("slots")
    write_lists = [sys.executable, "-m", "codegen.slots", include / "torch_backend" / "device.h", lists / "slots.h"]
    subprocess.run(write_lists, cwd=ROOT, check=True)

    def build(
        *switches: str, name: str = "", file: str | None = None, source: str = "plugin.c", over: str | None = None
    ) -> Path:
        name = name or over or "acme"
        if over:
            switches += (f'LIBRARY="{installed.reference_library(over)}"',)
        key = (switches, name, file, source)
        if key not in built:
            path = tmp_path_factory.mktemp("plugin") / (file or f"libtorch_backend_{name}.so")
            definitions = [f"-D{switch}" for switch in (f'DEVICE_NAME="{name}"', *switches)]
            command = [compiler, "-std=c99", "-shared", "-fPIC", f"-I{include}", f"-I{lists}", *definitions]
            subprocess.run([*command, PLUGIN_SOURCES / source, "-ldl", "-o", path], check=True)
            built[key] = path
        return built[key]

    return build


@pytest.fixture
def vendor_package(tmp_path: Path) -> VendorPackage:
    """Install a package with a device's entry point: ``vendor_package("acme", body)`` -> a directory for sys.path.

    ``body`` is the module's source; the entry point is ``<package>:<attribute>``.
    """

    def install(
        device: str,
        body: str,
        *,
        package: str | None = None,
        attribute: str = "library",
        group: str = "torch_backend.devices",
    ) -> Path:
        package = package or f"{device}_torch"
        directory = tmp_path / f"site-{package}"
        info = directory / f"{package}-1.2.dist-info"
        info.mkdir(parents=True)
        (directory / f"{package}.py").write_text(body)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{device} = {package}:{attribute}\n")
        return directory

    return install


@pytest.fixture(scope="session")
def name() -> str:
    """The active device's torch name."""
    plugin = torch_backend.active()
    if plugin is None:
        pytest.skip("no device is active: set TORCH_BACKEND")
    return plugin.name


@pytest.fixture(scope="session")
def backend(name: str) -> ModuleType:
    """``torch.<name>`` of the active device."""
    module = getattr(torch, name)
    assert isinstance(module, ModuleType)
    return module


@pytest.fixture
def two_devices(backend: ModuleType) -> None:
    """Skips on a machine with one device."""
    if backend.device_count() < 2:
        pytest.skip("needs two devices")


@pytest.fixture
def environment_of_its_own(tmp_path: Path) -> dict[str, str]:
    """Variables for a virtual environment that has all of this one's packages, and is to be changed."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    # Not only on the path: editable packages are found by what lies in their .pth files.
    here = sysconfig.get_path("purelib")
    (Path(packages) / "these_too.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    bin_directory = place / "bin"
    for program, module in {"pip": "pip", "torch-backend": "torch_backend"}.items():
        (bin_directory / program).write_text(f'#!/bin/sh\nexec "{bin_directory}/python" -m {module} "$@"\n')
        (bin_directory / program).chmod(0o755)
    path = os.pathsep.join([str(bin_directory), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "VIRTUAL_ENV": str(place)}
