"""What PyTorch's headers declare, read as text: nothing is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]", re.MULTILINE)
_CLASS = re.compile(
    r"\b(?:class|struct)\s+(?:[A-Z][A-Z0-9_]+\s+)*(?P<name>\w+)\s*(?:final\s*)?(?::(?P<bases>[^;{}()]*))?\{"
)
_STUB = re.compile(r"\bDECLARE_DISPATCH\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_LIST = re.compile(r"^#define\s+AT_FORALL_(\w+)\(_\)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w+")


@dataclass(frozen=True)
class Virtual:
    """A virtual function; ``signature`` without its body, spaces and defaults as in the header."""

    name: str
    signature: str
    pure: bool


@dataclass(frozen=True)
class Headers:
    """The headers of one torch, below ``root``. ``included``: those that we include, as the directives name them."""

    root: Path
    included: frozenset[str] = frozenset()

    def path(self, include: str) -> Path | None:
        """The file that ``#include <include>`` names, None if there is none."""
        for folder in (self.root, self.root / "torch" / "csrc" / "api" / "include", self.root / "kineto"):
            if (folder / include).is_file():
                return folder / include
        return None

    @cached_property
    def closure(self) -> frozenset[Path]:
        """The files that we include and all that they include, as far as they are PyTorch's."""
        seen: set[Path] = set()
        waiting = [path for include in self.included if (path := self.path(include))]
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                waiting += [
                    found
                    for include in _INCLUDE.findall(_text(path))
                    if (found := self.path(include) or _beside(path, include))
                ]
        return frozenset(seen)

    def words(self) -> frozenset[str]:
        """Every identifier in what we include, comments left out."""
        return frozenset(word for path in self.closure for word in _WORD.findall(_code(path)))

    def stubs(self) -> dict[str, str]:
        """The type of every DispatchStub."""
        found = {}
        for path in sorted(self.root.rglob("*.h")):
            if "DECLARE_DISPATCH" in (text := _code(path)):
                for arguments in _STUB.findall(_DIRECTIVE.sub("", text)):
                    type_, _, name = arguments.rpartition(",")
                    found[name.strip()] = _one_line(type_)
        return found

    def autocast(self) -> dict[str, frozenset[str]]:
        """The operators of each list of autocast's, "matmul", "norm.ScalarOpt_dtype"; {} where there are no lists."""
        path = self.path("ATen/autocast_mode.h")
        lists = _LIST.findall(_COMMENT.sub("", path.read_text(encoding="utf-8"))) if path else []
        return {name: frozenset(_operators(body)) for name, body in lists if "_(" in body}

    def virtuals(self, name: str) -> dict[str, Virtual] | None:
        """The virtual functions of a class and its bases, by name and parameters; None if no header defines it."""
        if name not in self._classes:
            return None
        bases, body = self._classes[name]
        found: dict[str, Virtual] = {}
        for base in bases:
            found.update(self.virtuals(base) or {})
        for virtual in _virtuals(body):
            found[_key(virtual.signature, virtual.name)] = virtual
        return found

    @cached_property
    def _classes(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """Bases and body of every class that we may derive from, by name; of several with one name, any."""
        found = {}
        for path in sorted(self.closure):
            text = _code(path)
            if not re.search(r"\bvirtual\b|\boverride\b", text):
                continue
            text = _DIRECTIVE.sub("", text)
            for match in _CLASS.finditer(text):
                bases = re.sub(r"<[^<>]*>", "", match["bases"] or "")
                words = (base.split("::")[-1].split() for base in bases.split(","))
                names = tuple(word[-1] for word in words if word and word[-1] != match["name"])
                found[match["name"]] = (names, text[match.end() : _closing(text, match.end())])
        return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _code(path: Path) -> str:
    return _COMMENT.sub("", _text(path))


def _beside(path: Path, include: str) -> Path | None:
    other = (path.parent / include).resolve()
    return other if other.is_file() else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _operators(body: str) -> Iterator[str]:
    for name, overload in re.findall(r"\b_\(\s*(\w+)(?:\s*,\s*(\w+)\s*[,)])?", body.replace("\\\n", " ")):
        yield f"{name}.{overload}" if overload else name


def _closing(text: str, start: int) -> int:
    """Where the brace that was opened before ``start`` is closed."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)


def _statements(body: str) -> Iterator[str]:
    """The declarations of a class, each without the braces of its body."""
    position = parentheses = 0
    for match in re.compile(r"[;{()]").finditer(body):
        if match[0] in "()":
            parentheses += 1 if match[0] == "(" else -1
        elif match.start() >= position and (match[0] == ";" or parentheses == 0):  # not of a default, "map = {}"
            yield body[position : match.start()]
            position = _closing(body, match.end()) + 1 if match[0] == "{" else match.end()
            parentheses = 0


def _virtuals(body: str) -> Iterator[Virtual]:
    for statement in _statements(body):
        text = re.sub(r"\b(public|protected|private)\s*:", "", statement)
        if not re.search(r"\bvirtual\b|\boverride\b", text) or "~" in text:
            continue
        text = _one_line(re.sub(r"\[\[.*?\]\]|\b(virtual|C10_\w+|TORCH_\w+)\b", "", text))
        if name := re.search(r"(operator\S+|\w+) ?\(", text):
            pure = bool(re.search(r"= ?0$", text))
            yield Virtual(name[1].strip(), re.sub(r" ?= ?0$", "", text).strip(), pure)


def _key(signature: str, name: str) -> str:
    """What makes an override one: name and types. Names of parameters and defaults do not count."""
    start = signature.index(name) + len(name)
    parameters, _, tail = signature[start:].strip().removeprefix("(").rpartition(")")
    types = [re.sub(r"\s*=.*", "", part) for part in _split(parameters)]
    types = [re.sub(r"(?<=[\w>*&]) ?\b\w+$", "", part) if " " in part else part for part in types]
    close = [re.sub(r" *([<>,&*:]) *", r"\1", part) for part in types]
    return f"{name}({', '.join(close)}){' const' if 'const' in tail else ''}"


def _split(parameters: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(parameters):
        depth += (letter in "<({") - (letter in ">)}")
        if letter == "," and not depth:
            parts.append(parameters[start:place].strip())
            start = place + 1
    return [part for part in [*parts, parameters[start:].strip()] if part]
