"""Links of included files, which are written for the repository: what is no page is named instead of linked to."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<target>(?!https?:)[^)#]+)\)")


def _name(match: re.Match[str]) -> str:
    text, target = match["text"], match["target"]
    return f"`{target}`" if Path(target).name == text.strip("`") else f"{text} (`{target}`)"


def name_files(_app: Sphinx, _path: Path, _page: str, content: list[str]) -> None:
    """Replace links to files in what a page includes."""
    content[0] = _LINK.sub(_name, content[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to includes."""
    app.connect("include-read", name_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
