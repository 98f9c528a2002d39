"""Fixtures of the tests in Python, of the core and of the conformance kit: their conftest.py import them."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch_conformance.processes import RunPython as RunPython
from torch_conformance.processes import clean_environment as clean_environment
from torch_conformance.processes import run_python as run_python
from torch_conformance.processes import template as template

import torch_backend
from torch_backend.files import installed

# A shell's background jobs ignore it, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[2]
PLUGIN_SOURCES = ROOT / "test" / "plugins"
SUPPORT = Path(__file__).parent

BuildPlugin = Callable[..., Path]
VendorPackage = Callable[..., Path]


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
