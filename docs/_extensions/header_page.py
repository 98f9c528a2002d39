"""The directive ``device-header``: device.h as a page, every slot and field with its comment and a link of its own."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from torch_backend.abi import header
from torch_backend.abi.header import Item
from torch_backend.files import installed

# What is code in a comment: what is in backticks; names with underscores, with * for any ending; calls of host.
_CODE = re.compile(r"""`[^`]+`|(?<![\w`"])(?:\w+->\w+|torch(?:\.\w+)+|&?\*?[A-Za-z]\w*_\w*(?:\*|\b)(?:->\w+|\.\w+)?)""")
_TWO_COLUMNS = re.compile(r"^ {2}([A-Z_]+) {2,}(\S.*)$")


class DeviceHeader(SphinxDirective):
    """The whole header. For a page in reStructuredText."""

    def run(self) -> list[nodes.Node]:
        """Parse the header and write it as reStructuredText."""
        path = installed.include_dir() / "torch_backend" / "device.h"
        self.env.note_dependency(str(path))
        return self.parse_text_to_nodes("\n".join(_page(path)), allow_section_headings=True)


def _page(path: Any) -> Iterator[str]:
    opening, sections = header.read(path)
    yield from _heading("What holds for everything")
    yield from _prose(opening)
    for section in sections:
        title = section.title[0].upper() + section.title[1:]
        yield from _heading(re.sub(r'"([\w.]+)"', r"``\1``", title))
        for item in section.items:
            yield from _item(item)


def _heading(title: str) -> Iterator[str]:
    yield from (title, "-" * (len(title) + 2), "")


def _item(item: Item, indent: str = "") -> Iterator[str]:
    if item.kind == "comment":
        yield from _indented(_prose(item.comment), indent)
    elif item.kind == "subtitle":
        yield from (f"{indent}.. rubric:: {inline(item.comment[0].upper() + item.comment[1:])}", "")
    elif item.kind == "macro":
        value = f"``{item.code}``" if item.code else ""
        meaning = inline(" ".join(item.comment.split()))
        yield from (f"{indent}.. c:macro:: {item.name}", "")
        yield from (indent + "   " + (": ".join(filter(None, (value, meaning)))), "")
    elif item.kind == "struct":
        yield from (f"{indent}.. c:struct:: {item.name}", "")
        yield from _indented(_prose(item.comment), indent + "   ")
        for member in item.members:
            yield from _member(member, indent + "   ")
    else:
        yield from _code(item, indent)


def _code(item: Item, indent: str) -> Iterator[str]:
    """Typedefs and functions become entries; what the C domain has no entry for is shown as it is."""
    code = " ".join(item.code.split()).rstrip(";")
    opaque = re.fullmatch(r"typedef struct (\w+) \1", code)
    pointer = re.fullmatch(r"typedef (.+?) ?\(\*(\w+)\)(\(.*\))", code)
    alias = re.fullmatch(r"typedef ([\w\s]+?) (\w+)", code)
    function = re.fullmatch(r"TB_EXPORT (.+\))", code)
    if opaque:
        signature = f"c:struct:: {opaque[1]}"
    elif pointer:
        signature = f"c:type:: {pointer[1]} (*{pointer[2]}){pointer[3]}"
    elif alias:
        signature = f"c:type:: {alias[1]} {alias[2]}"
    elif function:
        signature = f"c:function:: {function[1]}"
    else:
        yield from _indented(_prose(item.comment), indent)
        yield from (f"{indent}.. code-block:: c", "")
        yield from _indented([*textwrap.dedent(item.code).splitlines(), ""], indent + "   ")
        return
    yield from (f"{indent}.. {signature}", "")
    yield from _indented(_prose(item.comment), indent + "   ")


def _member(item: Item, indent: str) -> Iterator[str]:
    """A field, a slot, or several fields that are declared together."""
    if item.kind != "code":
        yield from _item(item, indent)
        return
    code = " ".join(item.code.split()).rstrip(";")
    if "{" in code:
        yield from _code(item, indent)
        return
    is_slot = "(*" in code
    first, *others = [code] if is_slot else [part.strip() for part in code.split(",")]
    kind = first.rpartition(" ")[0]
    for number, declarator in enumerate([first, *(f"{kind} {other}" for other in others)]):
        yield f"{indent}.. c:member:: {declarator}" if number == 0 else f"{indent}              {declarator}"
    yield ""
    yield from _indented(_prose(item.comment), indent + "   ")


def _indented(lines: Any, indent: str) -> Iterator[str]:
    for line in lines:
        yield indent + line if line else ""


def _prose(comment: str) -> Iterator[str]:
    """A comment as reStructuredText: paragraphs, lists, and lines that head what is indented below them."""
    lines = comment.splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines]
    in_list = False
    for number, line in enumerate(lines):
        text = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        heads = text and following and indents[number] == 0 and indents[number + 1] > 0
        if not text:
            yield ""
            in_list = False
        elif column := _TWO_COLUMNS.match(line):
            yield from ("", f"- ``{column[1]}``: {inline(column[2])}")
            in_list = True
        elif text.startswith("- "):
            yield from ("", f"- {inline(text[2:])}")
            in_list = True
        elif heads and not in_list and (number == 0 or not lines[number - 1].strip() or indents[number - 1] > 0):
            title = text.rstrip(":")
            yield from ("", f"**{title}**", "") if len(title) < 80 and "," not in title else (inline(text), "")
        elif in_list and indents[number] > 0:
            yield f"  {inline(text)}"
        else:
            if in_list:
                yield ""
                in_list = False
            yield inline(text)
    yield ""


def inline(text: str) -> str:
    """Names as code, everything else as it is."""
    parts = []
    end = 0
    for match in _CODE.finditer(text):
        parts += [_escape(text[end : match.start()]), f"``{match[0].strip('`')}``\\ "]
        end = match.end()
    parts.append(_escape(text[end:]))
    return "".join(parts)


def _escape(text: str) -> str:
    return re.sub(r"([*`|_\\])", r"\\\1", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("device-header", DeviceHeader)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
