"""What PyTorch's Python modules define, read as text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Parameters = tuple[str, ...]
"""Of a function, or of a class's constructor."""

VALUE: Parameters = ("",)
"""What stands for the parameters of anything else."""


@dataclass(frozen=True)
class Modules:
    """The Python sources of one torch, in a folder like site-packages."""

    root: Path
    _read: dict[str, dict[str, ast.stmt]] = field(default_factory=dict, repr=False)

    def find(self, name: str, depth: int = 0) -> Parameters | None:
        """The parameters of ``torch.a.b.C.d``, None if it is not found: not there, or made when torch is imported."""
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            module = ".".join(parts[:cut])
            if self._file(module):
                return VALUE if cut == len(parts) else self._member(module, parts[cut:], depth)
        return None

    def _file(self, module: str) -> Path | None:
        place = self.root.joinpath(*module.split("."))
        places = (place / "__init__.py", place.with_suffix(".py"), place / "__init__.pyi", place.with_suffix(".pyi"))
        return next((path for path in places if path.is_file()), None)

    def _member(self, module: str, path: list[str], depth: int) -> Parameters | None:
        if depth > 8:  # modules that import one another
            return None
        names = self._names(module)
        found = names.get(path[0])
        if found is None:
            stars = (s for s in names.values() if isinstance(s, ast.ImportFrom) and s.names[0].name == "*")
            places = (".".join([self._source(module, star), *path]) for star in stars)
            return next((there for place in places if (there := self.find(place, depth + 1)) is not None), None)
        if isinstance(found, ast.ImportFrom):
            original = next(alias.name for alias in found.names if (alias.asname or alias.name) == path[0])
            return self.find(".".join([self._source(module, found), original, *path[1:]]), depth + 1)
        return _inside(found, path[1:])

    def _names(self, module: str) -> dict[str, ast.stmt]:
        path = self._file(module)
        if module not in self._read and path is not None:
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


def _inside(statement: ast.stmt, path: list[str]) -> Parameters | None:
    if isinstance(statement, ast.ClassDef):
        members = dict(_defined(statement.body))
        if path and path[0] not in members:
            # What a base class or a decorator brings is not followed: it is not known to be missing.
            return VALUE if statement.bases or statement.decorator_list else None
        if path or isinstance(members.get("__init__"), ast.FunctionDef):
            return _inside(members[path[0] if path else "__init__"], path[1:])
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and not path:
        arguments = statement.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        stars = [("*", arguments.vararg), ("**", arguments.kwarg)]
        return (*(each.arg for each in named), *(f"{star}{each.arg}" for star, each in stars if each))
    return VALUE


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names with the statements that make them, those in branches too; the first of several counts."""
    for statement in reversed(body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    yield from ((node.id, statement) for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                yield f"*{statement.level}{statement.module}", statement
            case ast.ImportFrom() | ast.Import():
                for alias in statement.names:
                    yield alias.asname or alias.name.split(".")[0], statement
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for part in ("orelse", "handlers", "finalbody", "body"):
                    for inner in getattr(statement, part, ()):
                        yield from _defined(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])
