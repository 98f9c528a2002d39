"""The sentences of device.h, and for each the tests that break when a device breaks it, or why there is none.

promises.toml says both. It lists all sentences of comments, but those that only say "Required", "Optional" or "Since".
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch_backend.abi import header
from torch_backend.files import installed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OPENING = "all calls"
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?=- )|\n(?= {2}[A-Z_]{4,} {2})")
_END = re.compile(r"(?<=\.)(?<!e\.g\.)(?<!\.\.\.)\s+(?=[A-Z`*\"]|[a-z]+_)")
_IN_PASSING = re.compile(r"(required|optional|Required|Optional)\.?|Since \d+\.\d+\.")
_NAMED = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])?(?:, \w+)*;")


@dataclass(frozen=True)
class Promise:
    """One sentence.

    Attributes:
        place: the slot, type, field or constant it is about, "all calls" for what the opening says.
        tests: as in test ids, without parameters: "abi/test_copies.py::test_large_copies_arrive_whole".
        reason: why no test of the suite can break; "" if there are tests.
    """

    place: str
    sentence: str
    tests: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:  # noqa: D105  # as it is listed
        return f"{self.place}: {self.sentence}"


def in_header(path: Path | None = None) -> Iterator[str]:
    """The sentences of the header, each with its place, in its order."""
    opening, sections = header.read(path or installed.include_dir() / "torch_backend" / "device.h")
    yield from _sentences(_OPENING, opening)
    for section in sections:
        for item in section.items:
            section_name = section.title.removeprefix("optional table ")
            yield from _sentences(item.name or _name(item.code, section_name), item.comment)
            for member in item.members:
                name = _name(member.code, item.name)
                is_field = member.kind == "code" and "(*" not in member.code
                yield from _sentences(f"{item.name}.{name}" if is_field else name, member.comment)


def _name(code: str, otherwise: str) -> str:
    if macro := re.match(r"#define (\w+)", code):
        return macro[1]
    found = _NAMED.search(" ".join(code.split()))
    return (found[1] or found[2]) if found else otherwise


def _sentences(place: str, comment: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(comment):
        for sentence in _END.split(" ".join(paragraph.split()).removeprefix("- ")):
            if sentence and not _IN_PASSING.fullmatch(sentence):
                yield f"{place}: {sentence}"


@cache
def listed() -> dict[str, Promise]:
    """What promises.toml says, by place and sentence."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    found = {}
    for text, tests in table["tested"].items():
        found[text] = Promise(*_parts(text), tests=tuple(_test_id(test) for test in tests))
    for group in table["untested"]:
        for text in group["sentences"]:
            found[text] = Promise(*_parts(text), reason=group["reason"])
    return found


def _parts(text: str) -> tuple[str, str]:
    place, _, sentence = text.partition(": ")
    return place, sentence


def _test_id(test: str) -> str:
    return test if "/" in test else f"abi/{test}"


def of_test(test_id: str) -> list[Promise]:
    """What a device breaks that fails the test, whose id may have parameters and begin with other folders."""
    test = test_id.partition("[")[0]
    return [promise for promise in listed().values() if any(test.endswith(name) for name in promise.tests)]
