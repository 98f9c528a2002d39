"""Which source serves which operator of the reference device, compared with expected_sources_xcpu.txt.

A change of that file is a change for users: an operator that newly falls back got slower. After an intended one, or
for a new version of torch, write the file anew and look at the difference::

    TORCH_BACKEND=xcpu python test/python/test_operator_sources.py
"""

from pathlib import Path

import pytest
import torch

from torch_backend import operators

EXPECTED = Path(__file__).with_name("expected_sources_xcpu.txt")
LISTED = ("native", "aten", "fallback")
TORCH = ".".join(torch.__version__.split(".")[:2])
HEADER = f"""\
# Operator overloads of namespace aten by source, on xcpu with torch {TORCH}. The others are composite or unavailable.
# Written by: TORCH_BACKEND=xcpu python test/python/test_operator_sources.py
"""


def listing() -> str:
    sources = operators.operator_sources()
    lines = [HEADER]
    for listed in LISTED:
        overloads = sorted(op for op, source in sources.items() if source == listed and op.startswith("aten::"))
        lines += [f"\n[{listed}]\n", *(f"{op.removeprefix('aten::')}\n" for op in overloads)]
    return "".join(lines)


def by_source(text: str) -> dict[str, set[str]]:
    sections = text.split("\n[")[1:]
    return {section.split("]")[0]: set(section.split("\n")[1:]) - {""} for section in sections}


def test_sources_are_the_expected_ones(name: str) -> None:
    if name != "xcpu":
        pytest.skip("the list is of xcpu")
    text = EXPECTED.read_text()
    if f"with torch {TORCH}." not in text:
        pytest.skip(f"the list is not of torch {TORCH}")
    expected, actual = by_source(text), by_source(listing())
    for source in LISTED:
        assert actual[source] - expected[source] == set(), f"new in {source}"
        assert expected[source] - actual[source] == set(), f"not in {source} any more"


def test_list_is_well_formed() -> None:
    sections = by_source(EXPECTED.read_text())
    assert tuple(sections) == LISTED
    assert sum(map(len, sections.values())) == len(set.union(*sections.values())) > 500
    assert EXPECTED.read_text().startswith("# Operator overloads of namespace aten by source")


if __name__ == "__main__":
    EXPECTED.write_text(listing())
    print(f"{EXPECTED.name}: { ({source: len(ops) for source, ops in by_source(listing()).items()}) }")
