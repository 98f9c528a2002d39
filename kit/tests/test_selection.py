"""Which tests a pattern means, and which files need not be loaded for it."""

from pathlib import Path

import pytest
from torch_conformance import selection
from torch_conformance.levels import LEVELS, SUITE

ID = "ops/test_out.py::TestOutXCPU::test_out_add_xcpu_float32"


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        ("test_out_add", True),
        ("ops/test_out.py", True),
        ("ops/*_float32", True),
        ("*float3?", True),
        ("test_out_mul", False),
        ("tensor/*", False),
        ("ops/*_float", False),
    ],
)
def test_a_pattern_is_part_of_an_id_or_matches_it(pattern: str, means: bool) -> None:
    assert selection.matches(ID, [pattern]) is means
    assert selection.matches(ID, ["nothing", pattern]) is means


@pytest.mark.parametrize("is_thorough", [False, True])
def test_a_run_has_what_is_meant_and_does_not_take_too_long(is_thorough: bool) -> None:
    assert selection.Choice().has(ID, is_thorough=is_thorough)
    assert selection.Choice(patterns=["test_out_add"]).has(ID, is_thorough=is_thorough)
    assert not selection.Choice(patterns=["test_out_mul"]).has(ID, is_thorough=is_thorough)
    assert selection.Choice(quick=True).has(ID, is_thorough=is_thorough) is not is_thorough


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        ([], {"ops/test_out.py", "tensor/test_out.py", "tensor/test_views.py"}),
        (["test_views.py"], {"tensor/test_views.py"}),
        (["tensor/test_out.py::test_a*"], {"tensor/test_out.py"}),
        (["*test_out.py::*"], {"ops/test_out.py", "tensor/test_out.py"}),
        (["tensor/"], {"tensor/test_out.py", "tensor/test_views.py"}),
        (["test_view_of"], {"ops/test_out.py", "tensor/test_out.py", "tensor/test_views.py"}),
        (["test_views.py", "ops/test_out.py"], {"tensor/test_views.py", "ops/test_out.py"}),
        (["test_gone.py"], set()),
    ],
)
def test_only_files_that_may_hold_a_match_are_loaded(patterns: list[str], files: set[str]) -> None:
    root = Path("/suite")
    all_files = [root / name for name in ("ops/test_out.py", "tensor/test_out.py", "tensor/test_views.py")]
    found = selection.files_with_matches(all_files, root, patterns)
    assert {file.relative_to(root).as_posix() for file in found} == files


def test_every_level_has_tests() -> None:
    for level in LEVELS:
        assert level.files(), level.name
        assert all(file.is_relative_to(SUITE / level.folder) for file in level.files())
