"""Reading device.h: its sections, in each the declarations with the comments that belong to them, and their types.

The header is the one description of the contract. The types of :mod:`torch_backend.abi.structs`, the slots of devices
written in Python, the lists of slots for C (codegen/slots.py) and a page of the documentation are made of what is read
here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from torch_backend.files import installed

_BANNER = re.compile(r"^/\* =+ (?P<title>.+?) =+ \*/$")
_SUBTITLE = re.compile(r"^/\* ---- (?P<title>.+?) ---- \*/$")
_DEFINE = re.compile(r"^#define\s+(?P<name>\w+)(?P<parameters>\([^)]*\))?\s*(?P<value>.*)$")
_TRAILING = re.compile(r"^(?P<code>.*?)\s*/\* (?P<comment>.*?) ?\*/\s*$")
# Lines that are for the compiler, not for who reads about the contract.
_GUARDS = re.compile(r"^#(include|if|ifdef|ifndef|endif|else|undef|define (\w+_H_|TB_EXPORT))\b|^extern \"C\" \{$|^\}$")
_TABLE = re.compile(r"(?:optional table \")?(?P<name>[\w.]+)(?: table|\")")
_FUNCTION = re.compile(r"(?P<result>.+?) ?\(\*(?P<name>\w+)\)\((?P<parameters>.*)\);")
_VARIABLE = re.compile(r"(?P<type>.+?[ *])(?P<name>\w+)(?:\[(?P<length>\w+)\])?")
_STATUS = re.compile(r"X\((\w+), (\d+), ")
_UNION = re.compile(r"union \{ (?P<fields>.+?) \} (?P<name>\w+);")


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


@dataclass(frozen=True)
class Variable:
    """A parameter or a field; its type is without const, and that of an array parameter is a pointer.

    Attributes:
        length: of a field that is an array, as it is written; "" for others.
    """

    type: str
    name: str
    length: str = ""


@dataclass(frozen=True)
class Function:
    """A slot, or a type of functions.

    Attributes:
        text: the list of its parameters as it is written.
        need: of a slot, "required", "asynchronous" or "optional": the word that its part of the table begins with,
            or its own comment if that is "optional".
    """

    name: str
    result: str
    parameters: tuple[Variable, ...]
    text: str
    need: str = ""


Field = Variable | Function | tuple[str, list[Variable]]
"""The last is a union without a name of its own: the field's name and the union's fields."""


@dataclass
class Declarations:
    """What a program needs of the header, all by name and in its order.

    Attributes:
        constants: their values as they are written.
        structs: the fields of those whose fields are known.
        functions: the types of functions.
        tables: the structs that are tables, by what the banner calls them: "core", "graph.1".
    """

    constants: dict[str, str] = field(default_factory=dict)
    structs: dict[str, list[Field]] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)

    def slots(self, struct: str, need: str = "") -> list[Function]:
        """The slots of a table, all or those of which it says so."""
        return [slot for slot in self.structs[struct] if isinstance(slot, Function) and need in ("", slot.need)]


@cache
def installed_declarations() -> Declarations:
    """Those of the header that is installed with this package."""
    return declarations(installed.include_dir() / "torch_backend" / "device.h")


def declarations(path: Path) -> Declarations:
    """What the header at ``path`` declares."""
    found = Declarations()
    for section in read(path)[1]:
        table = _TABLE.fullmatch(section.title)
        for item in section.items:
            if item.kind == "macro":
                found.constants[item.name] = item.code
            elif item.kind == "struct":
                found.structs[item.name] = list(_fields(item))
                if table and item.name.endswith("_table"):
                    found.tables[table["name"]] = item.name
            elif item.kind == "code":
                found.constants |= _STATUS.findall(item.code)
                if function := _function(item.code.removeprefix("typedef ")):
                    found.functions[function.name] = function
    return found


def _fields(struct: Item) -> Iterator[Field]:
    need = "required"
    for member in struct.members:
        if member.kind == "subtitle":
            need = _first_word(member.comment)
        if member.kind != "code":
            continue
        code = " ".join(member.code.split())
        if function := _function(code, "optional" if _first_word(member.comment) == "optional" else need):
            yield function
        elif union := _UNION.fullmatch(code):
            yield union["name"], [_variable(text) for text in union["fields"].split(";") if text.strip()]
        else:
            first, *others = code.rstrip(";").split(",")
            kind = first.rpartition(" ")[0]
            yield from (_variable(text) for text in (first, *(f"{kind} {other}" for other in others)))


def _first_word(text: str) -> str:
    return text.partition(" ")[0].rstrip(":")


def _function(code: str, need: str = "") -> Function | None:
    match = _FUNCTION.fullmatch(" ".join(code.split()))
    if match is None:
        return None
    parameters = [text.strip() for text in match["parameters"].split(",")]
    variables = [_variable(text, is_parameter=True) for text in parameters if text not in ("void", "...")]
    return Function(match["name"], _type(match["result"]), tuple(variables), f"({match['parameters']})", need)


def _variable(text: str, is_parameter: bool = False) -> Variable:
    match = _VARIABLE.fullmatch(text.strip())
    assert match, text
    if is_parameter and match["length"]:
        return Variable(_type(match["type"]) + "*", match["name"])
    return Variable(_type(match["type"]), match["name"], match["length"] or "")


def _type(text: str) -> str:
    return re.sub(r"\bconst\b|\s", "", text)


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
