"""The directive ``promise-table``: the sentences of device.h, the tests that break with them, and what these catch."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from header_page import inline
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from torch_conformance import promises

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "kit" / "tests"


class PromiseTable(SphinxDirective):
    """Two tables. For a page in reStructuredText."""

    def run(self) -> list[nodes.Node]:
        """Write what promises.py finds, in the order of the header, as reStructuredText."""
        for pattern in ("kit/torch_conformance/suite/*/test_*.py", "test/plugins/faulty*"):
            for file in ROOT.glob(pattern):
                self.env.note_dependency(str(file))
        return self.parse_text_to_nodes("\n".join(_page()), allow_section_headings=True)


def _caught() -> dict[str, list[str]]:
    """The faulty devices by the test that catches them."""
    sys.path.insert(0, str(TESTS))
    try:
        from faulty_devices import FAULTY_DEVICES
    finally:
        sys.path.remove(str(TESTS))
    caught = defaultdict(list)
    for device in FAULTY_DEVICES:
        caught[device.caught_by.partition("[")[0]].append(device.name)
    return caught


def _page() -> Iterator[str]:
    caught, sentences = _caught(), promises.in_header()
    tests, untested = promises.tests(), promises.untested()
    faulty = sum(any(caught[test] for test in named) for named in tests.values())
    yield from (f"Of {len(sentences)} sentences {len(tests)} have tests, {faulty} of these faulty devices.", "")
    yield from ("With tests", "----------", "")
    yield from _head("What device.h says", "Tests that break", "Devices that show it")
    for name in [name for name in sentences if name in tests]:
        yield from _row(
            f"``{name}``: {inline(sentences[name])}",
            ", ".join(f"``{test.removeprefix('abi/')}``" for test in tests[name]),
            ", ".join(f"``{fault}``" for test in tests[name] for fault in caught[test]) or "none",
        )
    yield from ("", "Without", "-------", "")
    yield from _head("What device.h says", "Why no test can break")
    for name in [name for name in sentences if name in untested]:
        yield from _row(f"``{name}``: {inline(sentences[name])}", inline(untested[name]))
    yield ""


def _head(*titles: str) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "")
    yield from _row(*titles)


def _row(*cells: str) -> Iterator[str]:
    for number, cell in enumerate(cells):
        yield f"   {'-' if number else '* -'} {cell}".replace("   - ", "     - ")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("promise-table", PromiseTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
