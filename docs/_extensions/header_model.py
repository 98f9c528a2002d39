"""Reading device.h: its sections, and in each the declarations with the comments that belong to them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BANNER = re.compile(r"^/\* =+ (?P<title>.+?) =+ \*/$")
_SUBTITLE = re.compile(r"^/\* ---- (?P<title>.+?) ---- \*/$")
_DEFINE = re.compile(r"^#define\s+(?P<name>\w+)(?P<parameters>\([^)]*\))?\s*(?P<value>.*)$")
_TRAILING = re.compile(r"^(?P<code>.*?)\s*/\* (?P<comment>.*?) ?\*/\s*$")
# Lines that are for the compiler, not for who reads about the contract.
_GUARDS = re.compile(r"^#(include|if|ifdef|ifndef|endif|else|undef|define (\w+_H_|TB_EXPORT))\b|^extern \"C\" \{$|^\}$")


@dataclass
class Item:
    """One declaration, or a comment that stands alone.

    Attributes:
        kind: "comment", "subtitle", "macro", "code" or "struct".
        name: of a macro or struct.
        code: as in the header, without comments.
        comment: what is said about it.
        members: of a struct.
    """

    kind: str
    name: str = ""
    code: str = ""
    comment: str = ""
    members: list["Item"] = field(default_factory=list)


@dataclass
class Section:
    """What stands below one banner."""

    title: str
    items: list[Item] = field(default_factory=list)


def read(path: Path) -> tuple[str, list[Section]]:
    """The comment that opens the header, and its sections; the first, "version", is what has no banner."""
    lines = path.read_text(encoding="utf-8").splitlines()
    opening, rest = _comment(lines, 0)
    sections = [Section("version")]
    body: list[str] = []
    for line in lines[rest:]:
        banner = _BANNER.match(line)
        if banner:
            sections[-1].items = list(_items(body))
            sections.append(Section(banner["title"]))
            body = []
        else:
            body.append(line)
    sections[-1].items = list(_items(body))
    return opening, sections


def _comment(lines: list[str], at: int) -> tuple[str, int]:
    """The comment that starts in line ``at``, without its stars, and the number of the line after it."""
    end = next(number for number in range(at, len(lines)) if lines[number].rstrip().endswith("*/"))
    text = [re.sub(r"^\s*(/\*| \*(?!/)|\*(?!/)) ?", "", line) for line in lines[at : end + 1]]
    text[-1] = re.sub(r"\s*\*/\s*$", "", text[-1])
    return "\n".join(line.rstrip() for line in text).strip("\n"), end + 1


def _items(lines: list[str]) -> Iterator[Item]:
    pending = ""  # a comment that waits for what it is about
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.strip().startswith("/*"):
            if pending:
                yield Item("comment", comment=pending)
                pending = ""
            subtitle = _SUBTITLE.match(line.strip())
            if subtitle:
                yield Item("subtitle", comment=subtitle["title"])
                at += 1
                continue
            pending, at = _comment(lines, at)
            continue
        if not line.strip() or _GUARDS.match(line):
            if pending and not line.strip():
                yield Item("comment", comment=pending)
                pending = ""
            at += 1
            continue
        item, at = _declaration(lines, at)
        item.comment = " ".join(filter(None, (pending, item.comment)))
        pending = ""
        yield item
    if pending:
        yield Item("comment", comment=pending)


def _declaration(lines: list[str], at: int) -> tuple[Item, int]:
    define = _DEFINE.match(lines[at])
    if define:
        return _macro(lines, at, define)
    struct = re.match(r"^typedef struct (\w+) \{$", lines[at])
    if struct:
        end = next(number for number in range(at, len(lines)) if lines[number].startswith("}"))
        return Item("struct", struct[1], members=list(_items(lines[at + 1 : end]))), end + 1
    return _statement(lines, at)


def _macro(lines: list[str], at: int, define: re.Match[str]) -> tuple[Item, int]:
    end = at
    while lines[end].endswith("\\"):
        end += 1
    if end > at or define["parameters"]:
        return Item("code", code="\n".join(lines[at : end + 1])), end + 1
    value, comment = _split(define["value"])
    return Item("macro", define["name"], value, comment), end + 1


def _statement(lines: list[str], at: int) -> tuple[Item, int]:
    """A declaration that ends with a semicolon outside of braces."""
    code: list[str] = []
    comments: list[str] = []
    depth = 0
    while True:
        text, comment = _split(lines[at])
        code.append(text)
        if comment:
            comments.append(comment)
        depth += text.count("{") - text.count("}")
        at += 1
        if depth == 0 and text.endswith(";"):
            return Item("code", code="\n".join(code), comment=" ".join(comments)), at


def _split(line: str) -> tuple[str, str]:
    trailing = _TRAILING.match(line)
    return (trailing["code"].rstrip(), trailing["comment"]) if trailing else (line.rstrip(), "")
