"""Which source serves which operator of the reference device, compared with expected_sources_xcpu.txt.

ATen serves every operator that has a CPU kernel, and no other. The list has what is not so. A change of it is a change
for users: an operator that newly falls back got slower. After an intended one, or for a new version of torch, write the
file anew and look at the difference::

    TORCH_BACKEND=xcpu python test/python/test_operator_sources.py
"""

from pathlib import Path

import pytest
import torch

from torch_backend import operators

EXPECTED = Path(__file__).with_name("expected_sources_xcpu.txt")
LISTED = ("native", "aten", "composite", "fallback")
TORCH = ".".join(torch.__version__.split(".")[:2])
HEADER = f"""\
# Operator overloads of namespace aten by source, on xcpu with torch {TORCH}. Not listed: CPU kernels that ATen serves,
# and what has no CPU kernel and is composite or unavailable.
# Written by: TORCH_BACKEND=xcpu python test/python/test_operator_sources.py
"""


def is_listed(op: str, source: str) -> bool:
    has_cpu_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(op, "CPU")
    return source not in (("aten",) if has_cpu_kernel else ("composite", "unavailable"))


def listing() -> str:
    listed = [(op, source) for op, source in operators.operator_sources().items() if is_listed(op, source)]
    lines = [HEADER]
    for section in LISTED:
        overloads = sorted(op for op, source in listed if source == section and op.startswith("aten::"))
        lines += [f"\n[{section}]\n", *(f"{op.removeprefix('aten::')}\n" for op in overloads)]
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
    assert sum(map(len, sections.values())) == len(set.union(*sections.values())) > 200
    assert EXPECTED.read_text().startswith("# Operator overloads of namespace aten by source")


if __name__ == "__main__":
    EXPECTED.write_text(listing())
    print(f"{EXPECTED.name}: { ({source: len(ops) for source, ops in by_source(listing()).items()}) }")
