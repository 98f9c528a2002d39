"""Where the files that are installed with this package lie."""

from collections.abc import Iterator
from pathlib import Path

import torch_backend

REFERENCE_DEVICES = ("fake", "xcpu")
"""The devices that ship with us, as shared libraries. They are never activated unless they are asked for by name."""


def _roots() -> Iterator[Path]:
    # An editable install has two: the checkout, and where the build put its products.
    yield from (Path(root) for root in torch_backend.__path__)


def _first(candidates: Iterator[Path], marker: str, what: str) -> Path:
    tried = []
    for candidate in candidates:
        if (candidate / marker).is_file():
            return candidate
        tried.append(str(candidate))
    raise FileNotFoundError(
        f"This installation of torch_backend has no {what}: '{marker}' is not in {', '.join(tried)}. "
        "Reinstall torch_backend."
    )


def include_dir() -> Path:
    """The directory to put on a compiler's include path: it holds ``torch_backend/device.h``."""

    def candidates() -> Iterator[Path]:
        for root in _roots():
            yield root / "include"
        for root in _roots():
            yield root.parent / "include"  # a checkout

    return _first(candidates(), "torch_backend/device.h", "headers")


def cmake_dir() -> Path:
    """The directory for ``CMAKE_PREFIX_PATH`` or ``torch_backend_DIR``: it holds ``torch_backendConfig.cmake``."""

    def candidates() -> Iterator[Path]:
        for root in _roots():
            yield root / "share" / "cmake" / "torch_backend"

    return _first(candidates(), "torch_backendConfig.cmake", "CMake package")


def reference_library(name: str) -> Path:
    """The library of a reference device. The path is where it belongs; it need not exist."""
    return _library(f"libtorch_backend_{name}.so")


def host_library() -> Path:
    """The library that serves device libraries in a process without torch. It need not exist, as above."""
    return _library("libtorch_backend-host.so")


def _library(file: str) -> Path:
    paths = [root / "lib" / file for root in _roots()]
    return next((path for path in paths if path.is_file()), paths[0])


def torch_built_for() -> str | None:
    """The torch version the native part was built against, or None if the build left no record."""
    for root in _roots():
        record = root / "lib" / "torch_version.txt"
        if record.is_file():
            return record.read_text(encoding="utf-8").strip() or None
    return None
