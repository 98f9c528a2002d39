"""What PyTorch's Python modules define, read as text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Definition:
    """Something that a name stands for. ``parameters`` of a function or of a class's constructor, else None."""

    parameters: tuple[str, ...] | None = None


_VALUE = Definition()


@dataclass(frozen=True)
class Modules:
    """The Python sources of one torch, in a folder like site-packages."""

    root: Path
    _read: dict[str, dict[str, ast.stmt]] = field(default_factory=dict, repr=False)

    def find(self, name: str) -> Definition | None:
        """What ``torch.a.b.C.d`` is, None if it is not found: it is not there, or made when torch is imported."""
        return self._find(name, 0)

    def _find(self, name: str, depth: int) -> Definition | None:
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            module = ".".join(parts[:cut])
            if self._file(module):
                return _VALUE if cut == len(parts) else self._member(module, parts[cut:], depth)
        return None

    def _file(self, module: str) -> Path | None:
        place = self.root.joinpath(*module.split("."))
        places = (place / "__init__.py", place.with_suffix(".py"), place / "__init__.pyi", place.with_suffix(".pyi"))
        return next((path for path in places if path.is_file()), None)

    def _member(self, module: str, path: list[str], depth: int) -> Definition | None:
        if depth > 8:  # modules that import one another
            return None
        names = self._names(module)
        found = names.get(path[0])
        if found is None:
            stars = (s for s in names.values() if isinstance(s, ast.ImportFrom) and s.names[0].name == "*")
            sources = (self._source(module, statement) for statement in stars)
            return next((d for source in sources if (d := self._find(".".join([source, *path]), depth + 1))), None)
        if isinstance(found, ast.ImportFrom):
            original = next(alias.name for alias in found.names if (alias.asname or alias.name) == path[0])
            return self._find(".".join([self._source(module, found), original, *path[1:]]), depth + 1)
        return _inside(found, path[1:])

    def _names(self, module: str) -> dict[str, ast.stmt]:
        if module not in self._read:
            path = self._file(module)
            assert path is not None
            tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
            self._read[module] = dict(_defined(tree.body))
        return self._read[module]

    def _source(self, module: str, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        path = self._file(module)
        package = module.split(".")
        package = package[: len(package) - statement.level + (path is not None and path.stem == "__init__")]
        return ".".join([*package, *([statement.module] if statement.module else [])])


def _inside(statement: ast.stmt, path: list[str]) -> Definition | None:
    if isinstance(statement, ast.ClassDef):
        members = dict(_defined(statement.body))
        if path:
            # What a base class or a decorator brings is not followed: it is not known to be missing.
            if path[0] in members:
                return _inside(members[path[0]], path[1:])
            return _VALUE if statement.bases or statement.decorator_list else None
        constructor = members.get("__init__")
        return _function(constructor) if isinstance(constructor, ast.FunctionDef) else _VALUE
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and not path:
        return _function(statement)
    return _VALUE


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Definition:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    stars = [f"*{a.arg}" for a in (arguments.vararg,) if a] + [f"**{a.arg}" for a in (arguments.kwarg,) if a]
    return Definition((*(argument.arg for argument in named), *stars))


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names with the statements that make them, those in branches too; the first of several counts."""
    for statement in reversed(body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        yield node.id, statement
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement
        elif isinstance(statement, ast.ImportFrom):
            star = statement.names[0].name == "*"
            for alias in statement.names:
                yield f"*{statement.level}{statement.module}" if star else alias.asname or alias.name, statement
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name.split(".")[0], statement
        for part in ("orelse", "handlers", "finalbody", "body"):
            if isinstance(statement, (ast.If, ast.Try, ast.With, ast.For, ast.While)) and hasattr(statement, part):
                for inner in getattr(statement, part):
                    yield from _defined(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])
