"""What device.h promises, sentence by sentence, and the tests of the suite that break when a device breaks it.

A sentence is called after what it is about, the slot, type, field or constant, and its number there: "memory_fill 2" is
the second of memory_fill's comment, and "all calls 7.1" the first of the seventh paragraph, or point, of what opens the
header. Those that only say "Required", "Optional" or "Since" do not count, and where there is one sentence it needs no
number. A test has the names of those it keeps::

    @promise("memory_fill 2, all calls 7.1-3")
    def test_the_pattern_is_read_before_the_call_returns(library: DeviceLibrary) -> None: ...

untested.py has the others. ``python -m torch_conformance.promises`` prints all.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from torch_conformance.levels import SUITE
from torch_conformance.untested import UNTESTED

_OPENING = "all calls"
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?=- )|\n(?= {2}[A-Z_]{4,} {2})")
_END = re.compile(r"(?<=\.)(?<!e\.g\.)(?<!\.\.\.)\s+(?=[A-Z`*\"]|[a-z]+_)")
_IN_PASSING = re.compile(r"(required|optional|Required|Optional)\.?|Since \d+\.\d+\.")
_NAMED = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])?(?:, \w+)*;")
_NAMES = re.compile(r"(?P<place>\S+|all calls)(?P<numbers>( (\d+\.)?\d+(-\d+)?)*)")


def promise(*names: str) -> pytest.MarkDecorator:
    """A test that breaks when a device breaks one of these."""
    return pytest.mark.promise(*names)


def named(names: str) -> Iterator[str]:
    """The names that are written together: "initialize 1-3 5, tb_kernel"."""
    for text in names.split(", "):
        match = _NAMES.fullmatch(text)
        assert match, f"{text!r} names no sentence of device.h: expected 'memory_fill 2' or 'memory_fill 1-3 5'"
        for numbers in match["numbers"].split() or ["1"]:
            first, _, last = numbers.partition("-")
            paragraph, point, first = first.rpartition(".")
            for number in range(int(first), int(last or first) + 1):
                yield f"{match['place']} {paragraph}{point}{number}"


@cache
def in_header(path: Path | None = None) -> Mapping[str, str]:
    """The sentences of the header by name, in its order."""
    from torch_backend.files import installed

    paragraphs: dict[str, list[list[str]]] = defaultdict(list)
    for place, comment in _comments(path or installed.include_dir() / "torch_backend" / "device.h"):
        paragraphs[place] += filter(None, map(_sentences, _PARAGRAPH.split(comment)))
    return {
        f"{place} {f'{paragraph}.' if len(of_place) > 1 else ''}{number}": sentence
        for place, of_place in paragraphs.items()
        for paragraph, sentences in enumerate(of_place, 1)
        for number, sentence in enumerate(sentences, 1)
    }


def _comments(path: Path) -> Iterator[tuple[str, str]]:
    from torch_backend.abi import header

    opening, sections = header.read(path)
    yield _OPENING, opening
    for section in sections:
        for item in section.items:
            section_name = section.title.removeprefix("optional table ").strip('"')
            yield item.name or _name(item.code, section_name), item.comment
            for member in item.members:
                name = _name(member.code, item.name)
                is_field = member.kind == "code" and "(*" not in member.code
                yield f"{item.name}.{name}" if is_field else name, member.comment


def _name(code: str, otherwise: str) -> str:
    if macro := re.match(r"#define (\w+)", code):
        return macro[1]
    found = _NAMED.search(" ".join(code.split()))
    return (found[1] or found[2]) if found else otherwise


def _sentences(paragraph: str) -> list[str]:
    sentences = _END.split(" ".join(paragraph.split()).removeprefix("- "))
    return [sentence for sentence in sentences if sentence and not _IN_PASSING.fullmatch(sentence)]


@cache
def kept_in(file: Path) -> Mapping[str, tuple[str, ...]]:
    """The tests in a file of the suite that are marked, and what each keeps."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
            written = [ast.literal_eval(names) for mark in marks if _is_promise(mark) for names in mark.args]
            if written:
                found[node.name] = tuple(named(", ".join(written)))
    return found


def _is_promise(mark: ast.Call) -> bool:
    return isinstance(mark.func, ast.Name) and mark.func.id == promise.__name__


@cache
def tests() -> Mapping[str, list[str]]:
    """By the name of a sentence: the tests that break, without parameters, "abi/test_fills.py::test_..."."""
    found = defaultdict(list)
    for file in sorted(SUITE.glob("*/test_*.py")):
        for test, names in kept_in(file).items():
            for name in names:
                found[name].append(f"{file.relative_to(SUITE).as_posix()}::{test}")
    return found


@cache
def untested() -> Mapping[str, str]:
    """By the name of a sentence: why no test can break."""
    return {name: reason for reason, names in UNTESTED.items() for name in named(" ".join(names.split()))}


def of_test(test_id: str) -> Iterator[str]:
    """What a device breaks that fails the test, whose id may have parameters and begin with other folders."""
    file, _, test = test_id.partition("[")[0].partition("::")
    path = SUITE.joinpath(*Path(file).parts[-2:])
    for name in kept_in(path).get(test, ()) if path.is_file() else ():
        if sentence := in_header().get(name):  # that of another version may not have it
            yield f"{name.rpartition(' ')[0]}: {sentence}"


if __name__ == "__main__":
    for name, sentence in in_header().items():
        print(f"{name}: {sentence}\n    {', '.join(tests().get(name, ())) or untested().get(name, 'is not tested')}")
