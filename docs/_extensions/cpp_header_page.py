"""The directive ``cpp-api-header``: api.h as a page, each class and function with its comment and a link."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from torch_backend.files import installed

_SECTION = re.compile(r"// ---- (.+) ----")
_CODE = re.compile(r"""(?<![\w`"])(?:\w+(?:::\w+)+(?:\(\))?(?:\.\w+\(\w*\))*|[A-Za-z]\w*_\w*(?:\(\)|\*)?|\w+\(\))""")


class CppApiHeader(SphinxDirective):
    """The whole header. For a page in reStructuredText."""

    def run(self) -> list[nodes.Node]:
        """Parse the header and write it as reStructuredText."""
        path = installed.include_dir() / "torch_backend" / "api.h"
        self.env.note_dependency(str(path))
        return self.parse_text_to_nodes("\n".join(page(path)), allow_section_headings=True)


def page(path: Path) -> Iterator[str]:
    """What stands before ``#pragma once``, then declarations by section. What has no comment is not part of the API."""
    opening, _, rest = path.read_text(encoding="utf-8").partition("#pragma once")
    yield from _opening([line.removeprefix("//").removeprefix(" ") for line in opening.splitlines()])
    yield from (".. cpp:namespace:: torch_backend", "")
    comment: list[str] = []
    inside = False  # a class
    lines = iter(rest.splitlines())
    for line in lines:
        text = line.strip()
        if section := _SECTION.fullmatch(text):
            title = section[1].capitalize()
            yield from (title, "-" * len(title), "")
        elif text.startswith("///"):
            comment.append(text.removeprefix("///").removeprefix(" "))
        elif text == "};":
            inside = False
        elif comment:
            while not text.endswith((";", "{")):
                text += " " + next(lines).strip()
            yield from _declaration(text.rstrip(";{ "), comment, "   " if inside else "")
            inside = inside or text.startswith("class ")
            comment = []


def _declaration(code: str, comment: list[str], indent: str) -> Iterator[str]:
    kind = "class" if code.startswith("class ") else "type" if code.startswith("using ") else "function"
    code = re.sub(r"^(class|using) ", "", code)
    yield from (f"{indent}.. cpp:{kind}:: {code}", "")
    yield from (f"{indent}   {_inline(line)}".rstrip() for line in [*comment, ""])


def _opening(lines: list[str]) -> Iterator[str]:
    """Paragraphs, and indented lines of two columns as a table of definitions."""
    for line in lines:
        term, _, meaning = line.strip().partition("  ")
        if line.startswith("  ") and meaning:
            yield from (f"**{term}**", f"   {_inline(meaning.strip())}")
        elif line.startswith("  "):
            yield f"   {_inline(line.strip())}"
        else:
            yield _inline(line)
    yield ""


def _inline(text: str) -> str:
    pieces = [f"``{piece[1:-1]}``" if piece.startswith("`") else piece for piece in re.split(r"(`[^`]+`)", text)]
    return "".join(p if p.startswith("``") else _CODE.sub(lambda m: f"``{m[0]}``\\ ", p) for p in pieces)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cpp-api-header", CppApiHeader)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
