"""The device's declarations of CUDA's functions and numbers are those of NVIDIA's headers, which come from PyPI."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from torch_backend.files import installed

PROJECT = Path(__file__).parents[1]
TOOLS = PROJECT / "build" / "tools" / "nvidia"
# Wheels of hundreds of megabytes, of which the headers are wanted: where NVIDIA_HEADERS=all.
LARGE = ("nvidia-cuda-cccl==13.*", "nvidia-cublas==13.*", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")
HEADERS = {"cuda.h", "cupti.h", "nvrtc.h"}
LARGE_HEADERS = {"cublasLt.h", "cudnn.h", "nccl.h"}


def compiled(tmp_path: Path, text: str, folders: list[Path]) -> tuple[str, set[str]]:
    """The compiler's messages for declarations.cpp, or what it was changed into, and NVIDIA's headers that it read."""
    (tmp_path / "declarations.cpp").write_text(text)
    include = installed.include_dir()
    places = [f"-I{include}", f"-I{include.parent}", f"-I{PROJECT.parent}", "-iquote", str(PROJECT / "csrc")]
    places += [argument for folder in folders for argument in ("-isystem", str(folder))]
    command = [os.environ.get("CXX") or "c++", "-std=c++20", "-fsyntax-only", "-H", *places, "declarations.cpp"]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    read = {Path(path) for path in re.findall(r"^\.+ (.+)$", done.stderr, re.MULTILINE)}
    messages = [line for line in done.stderr.splitlines() if " error: " in line]
    return "\n".join(messages), {path.name for path in read if path.parent in folders}


def small() -> list[Path]:
    folders = [TOOLS / "cu13" / "include"]
    assert (folders[0] / "cuda.h").exists(), "`make test-vendor-cuda` installs what pyproject.toml lists as tools"
    return folders


def large() -> list[Path]:
    folder = PROJECT / "build" / "headers"
    if not folder.exists():
        wheels = PROJECT / "build" / "wheels"
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        for package in LARGE:
            subprocess.run([*download, package], check=True)
            for wheel in wheels.glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(folder, [name for name in archive.namelist() if "/include/" in name])
                wheel.unlink()
    return sorted(folder.glob("nvidia/*/include"))


SOURCE = (Path(__file__).parent / "declarations.cpp").read_text()


def test_declarations_are_those_of_cuda(tmp_path: Path) -> None:
    messages, read = compiled(tmp_path, SOURCE, small())
    assert not messages
    assert read >= HEADERS


@pytest.mark.skipif(os.environ.get("NVIDIA_HEADERS") != "all", reason="NVIDIA_HEADERS=all downloads a gigabyte")
def test_declarations_are_those_of_libraries(tmp_path: Path) -> None:
    messages, read = compiled(tmp_path, SOURCE, small() + large())
    assert not messages
    assert read >= HEADERS | LARGE_HEADERS


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [
        ("decltype(xcuda::functions::name)", "void (*)(float)"),
        ("offsetof(xcuda::CUDA_MEMCPY2D, Height)", "offsetof(xcuda::CUDA_MEMCPY2D, dstPitch)"),
        ("static_cast<int>(name) == value", "static_cast<int>(name) == value + 1"),
        ("decltype(xcuda::nvrtc_functions::name)", "void (*)(float)"),
    ],
)
def test_what_differs_is_found(tmp_path: Path, ours: str, wrong: str) -> None:
    assert ours in SOURCE
    messages, _ = compiled(tmp_path, SOURCE.replace(ours, wrong, 1), small())
    assert "static assertion failed" in messages
