"""What torch_backend uses of PyTorch, and where: its own sources, read as text."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_PYTHON = ("torch_backend/**/*.py", "kit/torch_conformance/**/*.py")
_INCLUDE = re.compile(r"#\s*include\s*<((?:ATen|c10|torch|caffe2)/[^>]+|libkineto\.h|I?Activity\w+\.h)>")
_BASE = re.compile(
    r"(?:class|struct)\s+(\w+)[^;{}()]*?:\s*(?:public\s+)?(?:virtual\s+)?((?:at|c10|c10d|torch|libkineto)::[\w:]+)"
)
_OF_PYTORCH = re.compile(r"\b(?:(?:at|c10|c10d|caffe2|torch|libkineto)(?:::\w+)+|(?:AT|C10|TORCH|CAFFE2|KERNEL)_\w+)")
_STRING_OR_COMMENT = re.compile(r"//.*|\"(?:[^\"\\]|\\.)*\"")
_OPERATOR = re.compile(r"(?:\bimpl\(\"|\b_ops::|\bat::(?!_ops)|\baten::|\baten\.)([a-z_]\w*(?:\.\w+)?)")
_LISTED = re.compile(r"(?<![\w.])[a-z_]\w*(?:\.\w+)?")
_GUARD = re.compile(r"__has_include|TORCH_VERSION")


@dataclass(frozen=True)
class Use:
    """A line of ours. ``guarded``: it is compiled only for the versions of torch that have what it uses."""

    path: str
    line: int
    guarded: bool = False

    def __str__(self) -> str:
        """As compilers name a place."""
        return f"{self.path}:{self.line}"


Uses = Mapping[str, list[Use]]


@dataclass(frozen=True)
class Sources:
    """The project below ``root``: csrc/, torch_backend/, and what codegen/ is told of operators."""

    root: Path

    @cached_property
    def includes(self) -> Uses:
        """The headers of PyTorch that are included."""
        return _by_name((name, use) for use, text in self._cpp for name in _INCLUDE.findall(text))

    @cached_property
    def names(self) -> Uses:
        """The names of PyTorch's namespaces in the C++ sources, each part of at::detail::empty, and its macros."""
        return _by_name(
            (part, use)
            for use, text in self._cpp
            for name in _OF_PYTORCH.findall(_STRING_OR_COMMENT.sub("", text))
            for part in dict.fromkeys(name.split("::"))
        )

    @cached_property
    def bases(self) -> Uses:
        """The classes of PyTorch that are derived from."""
        files: dict[str, list[tuple[Use, str]]] = {}
        for use, line in self._cpp:
            files.setdefault(use.path, []).append((use, line))
        texts = [(lines, "\n".join(line for _, line in lines)) for lines in files.values()]
        return _by_name(
            (match[2].split("::")[-1], lines[text.count("\n", 0, match.start(1))][0])
            for lines, text in texts
            for match in _BASE.finditer(text)
        )

    def overrides(self, base: str, function: str) -> list[Use]:
        """Where a class of ours that derives from ``base`` has a virtual function of that name."""
        declaration = re.compile(rf"\b{re.escape(function)} ?\(")
        return [
            place
            for use in self.bases.get(base, ())
            for place, text in self._cpp
            if place.path == use.path and place.line > use.line and declaration.search(text)
        ]

    @cached_property
    def operators(self) -> Uses:
        """Operators by name, and by overload where it is written: in kernels, tables and Python."""
        tables, python = self._lines("codegen/*.yaml"), self._lines(*_PYTHON)
        return _by_name(
            (name, use)
            for lines, pattern in ((self._cpp, _OPERATOR), (tables, _LISTED), (python, _OPERATOR))
            for use, text in lines
            for name in dict.fromkeys(pattern.findall(text.split(" #")[0]))
        )

    @cached_property
    def python(self) -> Uses:
        """What Python sources import from torch and name below it, "torch._C._get_accelerator"."""
        return _by_name(
            (name, Use(path.relative_to(self.root).as_posix(), line))
            for path in sorted(path for pattern in _PYTHON for path in self.root.glob(pattern))
            for name, line in _torch_names(ast.parse(path.read_text(encoding="utf-8")))
        )

    @cached_property
    def seams(self) -> Mapping[str, tuple[tuple[str, ...], Use]]:
        """What seams.py lists, each with the parameters that it expects."""
        place = "torch_backend/compile/seams.py"
        if not (self.root / place).is_file():
            return {}
        lines = list(self._lines(place))
        found = {}
        for value in runpy.run_path(str(self.root / place)).values():
            for seam in value if isinstance(value, tuple) else (value,):
                if type(seam).__name__ == "Seam":
                    use = next((use for use, line in lines if f'"{seam.name}"' in line), Use(place, 1))
                    found[str(seam)] = (seam.parameters, use)
        return found

    @cached_property
    def _cpp(self) -> list[tuple[Use, str]]:
        folders = ("csrc", "bindings", "codegen/templates")
        return list(self._lines(*(f"{folder}/**/*{end}" for folder in folders for end in (".h", ".cpp", ".cpp.jinja"))))

    def _lines(self, *patterns: str) -> Iterator[tuple[Use, str]]:
        for path in sorted(path for pattern in patterns for path in self.root.glob(pattern)):
            guards: list[bool] = []
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                directive = re.match(r"\s*#\s*(if|else|elif|endif)", line)
                if directive and directive[1] == "endif":
                    guards = guards[:-1]
                elif directive and directive[1] == "if":
                    guards.append(bool(_GUARD.search(line)))
                yield Use(path.relative_to(self.root).as_posix(), number, any(guards)), line


def _by_name(found: Iterable[tuple[str, Use]]) -> Uses:
    uses: dict[str, list[Use]] = {}
    for name, use in found:
        uses.setdefault(name, []).append(use)
    return uses


def _torch_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    aliases = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    aliases[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}", node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in aliases and re.fullmatch(r"[\w.]+", rest):
                yield f"{aliases[first]}.{rest}", node.lineno
