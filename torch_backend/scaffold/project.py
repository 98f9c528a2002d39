"""The files of a new plugin project."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torch_backend.version import TORCH, __version__

if TYPE_CHECKING:
    from jinja2 import Environment


class Language(Enum):
    """What a device library is written in."""

    C = "c"
    CXX = "c++"

    @property
    def suffix(self) -> str:
        """How its source files end."""
        return {Language.C: "c", Language.CXX: "cpp"}[self]


class Kind(Enum):
    """What there is of the device: what its driver is like, or that it is written in Python."""

    HOST = "host"
    """Nothing yet, or calls that are done when they return: memory of the host's heap."""
    HANDLES = "handles"
    """Queues, and memory with handles in place of addresses."""
    CUDA_LIKE = "cuda-like"
    """An SDK with CUDA's calls: streams, events, memory with addresses."""
    PYTHON = "python"
    """A class in Python."""

    @property
    def languages(self) -> tuple[Language, ...]:
        """What such a device can be written in, the default first; none of them if it is no library."""
        return {Kind.HOST: (Language.C, Language.CXX), Kind.PYTHON: ()}.get(self, (Language.CXX,))


@dataclass(frozen=True)
class Project:
    """A plugin project that can be written.

    Attributes:
        name: the torch device name; see :func:`check_name`.
        kind: what there is of the device.
        language: what its library is written in; the kind's first by default.
        kernels: whether the device comes with two kernels of its own.
        vendor: who makes the device; its name, as a title, by default.

    Raises:
        ValueError: what is asked for does not go together.
    """

    name: str
    kind: Kind = Kind.HOST
    language: Language | None = None
    kernels: bool = False
    vendor: str | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        languages = self.kind.languages
        if self.language and self.language not in languages:
            what = " or ".join(language.value for language in languages) or "Python: leave out --lang"
            raise ValueError(f"A device of --kind {self.kind.value} is written in {what}.")
        if self.kind is Kind.HANDLES and self.kernels:
            raise ValueError(
                "Kernels on the host cannot compute in memory of handles. Leave out --kernels, and offer modules: see "
                "the guide 'Native in a day'."
            )

    def files(self) -> Mapping[str, str]:
        """The text of every file, by its path in the project."""
        return {path: self.render(template) for path, template in self._templates().items()}

    def render(self, template: str) -> str:
        """What a template of this package gives for the project."""
        title = self.name.replace("_", " ").capitalize()
        first, *others = self.name.split("_")
        return (
            _environment()
            .get_template(f"{template}.jinja")
            .render(
                name=self.name,
                title=title,
                sdk=first + "".join(word.capitalize() for word in others),  # what its calls begin with
                vendor=self.vendor or title,
                suffix=self._suffix,
                kernels=self.kernels,
                kind=self.kind.value,
                year=date.today().year,
                torch_backend=_requirement_of_torch_backend(),
                torch=f"torch{TORCH}",  # a device library works with all of them
            )
        )

    def write(self, directory: Path) -> list[Path]:
        """Write the project to ``directory``, which must not exist, and return its files.

        Raises FileExistsError if it exists, and OSError if it cannot be written; nothing is left then.
        """
        files = self.files()
        if directory.exists() or directory.is_symlink():
            raise FileExistsError(f"'{directory}' exists already. Name another place with --directory.")
        directory.mkdir(parents=True)
        try:
            for path, text in files.items():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return [directory / path for path in files]

    @property
    def _suffix(self) -> str:
        """How its sources end."""
        language = self.language or next(iter(self.kind.languages), None)
        return language.suffix if language else "py"

    def _templates(self) -> dict[str, str]:
        suffix, package = self._suffix, f"python/torch_{self.name}"
        if self.kind is Kind.PYTHON:
            return self._python_templates(package)
        templates = {
            f"csrc/plugin.{suffix}": f"plugin.{suffix}",
            "CMakeLists.txt": "CMakeLists.txt",
            "pyproject.toml": "pyproject.toml",
            f"{package}/__init__.py": "__init__.py",
            f"{package}/py.typed": "py.typed",
            "README.md": "README.md",
            ".clang-format": "clang-format",
            **_COMMON,
        }
        if self.kind is Kind.HANDLES:
            sources = ("plugin.cpp", "driver.h", "driver.cpp")
            templates |= {f"csrc/{source}": f"handles/{source}" for source in sources}
        elif self.kind is Kind.CUDA_LIKE:
            templates["csrc/plugin.cpp"] = "cuda_like/plugin.cpp"
            templates |= {f"csrc/{self.name}_runtime.{end}": f"cuda_like/runtime.{end}" for end in ("h", "cpp")}
        elif suffix == "cpp":
            templates["csrc/memory.h"] = "memory.h"
        if self.kernels:
            templates[f"csrc/kernels.{suffix}"] = f"kernels.{suffix}"
        return templates

    def _python_templates(self, package: str) -> dict[str, str]:
        templates = {
            f"{package}/device.py": "python/device.py",
            f"{package}/__init__.py": "python/__init__.py",
            f"{package}/py.typed": "py.typed",
            "pyproject.toml": "python/pyproject.toml",
            "README.md": "python/README.md",
            **_COMMON,
        }
        if self.kernels:
            templates[f"{package}/kernels.py"] = "python/kernels.py"
        return templates


_COMMON = {
    "test/test_conformance.py": "test_conformance.py",
    ".github/workflows/test.yml": "test.yml",
    ".gitignore": "gitignore",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE",
}


def _requirement_of_torch_backend() -> str:
    """This version or a later one with the same device ABI's major version."""
    return f"torch_backend>={'.'.join(__version__.split('.')[:2])},<1"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("torch_backend.scaffold"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
