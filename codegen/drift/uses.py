"""What torch_backend uses of PyTorch, and where: its own sources, read as text."""

from __future__ import annotations

import ast
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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


@dataclass(frozen=True)
class Sources:
    """The project below ``root``: csrc/, torch_backend/, and what codegen/ is told of operators."""

    root: Path

    @cached_property
    def includes(self) -> Mapping[str, list[Use]]:
        """The headers of PyTorch that are included."""
        found: dict[str, list[Use]] = defaultdict(list)
        for use, text in self._cpp:
            for name in _INCLUDE.findall(text):
                found[name].append(use)
        return found

    @cached_property
    def names(self) -> Mapping[str, list[Use]]:
        """The names of PyTorch's namespaces in the C++ sources, each part of at::detail::empty, and its macros."""
        found: dict[str, list[Use]] = defaultdict(list)
        for use, text in self._cpp:
            for name in _OF_PYTORCH.findall(_STRING_OR_COMMENT.sub("", text)):
                for part in dict.fromkeys(name.split("::")):
                    found[part].append(use)
        return found

    @cached_property
    def bases(self) -> Mapping[str, list[Use]]:
        """The classes of PyTorch that are derived from."""
        found: dict[str, list[Use]] = defaultdict(list)
        for path in self._cpp_files:
            lines = list(self._lines(path))
            text = "\n".join(line for _, line in lines)
            for match in _BASE.finditer(text):
                found[match[2].split("::")[-1]].append(lines[text.count("\n", 0, match.start(1))][0])
        return found

    def overrides(self, base: str, function: str) -> list[Use]:
        """Where a class of ours that derives from ``base`` has a virtual function of that name."""
        declaration = re.compile(rf"\b{re.escape(function)} ?\(")
        found = []
        for use in self.bases.get(base, ()):
            for place, text in self._cpp:
                if place.path == use.path and place.line > use.line and declaration.search(text):
                    found.append(place)
        return found

    @cached_property
    def operators(self) -> Mapping[str, list[Use]]:
        """Operators by name, and by overload where it is written: in kernels, tables and Python."""
        found: dict[str, list[Use]] = defaultdict(list)
        for lines, pattern in ((self._cpp, _OPERATOR), (self._tables, _LISTED), (self._python_lines, _OPERATOR)):
            for use, text in lines:
                for name in dict.fromkeys(pattern.findall(text.split(" #")[0])):
                    found[name].append(use)
        return found

    @cached_property
    def python(self) -> Mapping[str, list[Use]]:
        """What Python sources import from torch and name below it, "torch._C._get_accelerator"."""
        found: dict[str, list[Use]] = defaultdict(list)
        for path in self._python_files:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for name, line in _torch_names(tree):
                found[name].append(Use(self._name(path), line))
        return found

    @cached_property
    def seams(self) -> Mapping[str, tuple[tuple[str, ...], Use]]:
        """What seams.py lists, each with the parameters that it expects."""
        path = self.root / "torch_backend" / "compile" / "seams.py"
        if not path.is_file():
            return {}
        values = runpy.run_path(str(path))
        seams = [seam for value in values.values() for seam in (value if isinstance(value, tuple) else (value,))]
        lines = path.read_text(encoding="utf-8").splitlines()
        return {
            str(seam): (seam.parameters, Use(self._name(path), _line_of(lines, seam.name)))
            for seam in seams
            if type(seam).__name__ == "Seam"
        }

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @cached_property
    def _cpp_files(self) -> list[Path]:
        kinds = ("*.h", "*.cpp", "*.cpp.jinja")
        folders = ("csrc", "torch_backend/csrc", "codegen/templates")
        return sorted(path for folder in folders for kind in kinds for path in (self.root / folder).rglob(kind))

    @cached_property
    def _cpp(self) -> list[tuple[Use, str]]:
        return [entry for path in self._cpp_files for entry in self._lines(path)]

    @cached_property
    def _tables(self) -> list[tuple[Use, str]]:
        return [entry for path in sorted((self.root / "codegen").glob("*.yaml")) for entry in self._lines(path)]

    @cached_property
    def _python_files(self) -> list[Path]:
        return sorted((self.root / "torch_backend").rglob("*.py"))

    @cached_property
    def _python_lines(self) -> list[tuple[Use, str]]:
        return [entry for path in self._python_files for entry in self._lines(path) if "aten" in entry[1]]

    def _lines(self, path: Path) -> Iterator[tuple[Use, str]]:
        guards: list[bool] = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            directive = re.match(r"\s*#\s*(if|else|elif|endif)", line)
            if directive and directive[1] == "endif":
                guards = guards[:-1]
            elif directive and directive[1] == "if":
                guards.append(bool(_GUARD.search(line)))
            yield Use(self._name(path), number, any(guards)), line


def _line_of(lines: list[str], name: str) -> int:
    return next((number for number, line in enumerate(lines, 1) if f'"{name}"' in line), 1)


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
        if isinstance(node, ast.Attribute) and (name := _dotted(node)) and name.split(".")[0] in aliases:
            first, _, rest = name.partition(".")
            yield f"{aliases[first]}.{rest}", node.lineno


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return None
