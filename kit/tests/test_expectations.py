"""Known failures: what a file of them may say, and what they do to results."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch_conformance import DeviceDescription, Result, expectations
from torch_conformance.expectations import Expectation
from torch_conformance.routes.library import Library

FAILED = Result("ops/test_forward.py::test_forward[add]", "failed", message="values differ")
PASSED = Result("ops/test_forward.py::test_forward[mul]", "passed")
CRASHED = Result("tensor/test_views.py::test_view", "crashed")


def read(tmp_path: Path, text: str) -> tuple[Expectation, ...]:
    path = tmp_path / "expectations.toml"
    path.write_text(text)
    return expectations.read(path, "acme")


def apply(*entries: Expectation, partial: bool = False) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    return expectations.apply(entries, [FAILED, PASSED, CRASHED], {"ops", "tensor"}, partial)


def test_a_failure_that_is_expected_is_known_with_its_reason() -> None:
    results, problems = apply(Expectation(FAILED.test, "in firmware 2"))
    assert [result.outcome for result in results] == ["known", "passed", "crashed"]
    assert results[0].message == "in firmware 2 (values differ)"
    assert not problems


def test_a_pattern_matches_and_brackets_are_literal() -> None:
    results, problems = apply(Expectation("ops/*[add]", "r"), Expectation("tensor/*", "r"))
    assert [result.outcome for result in results] == ["known", "passed", "known"]
    assert not problems


def test_an_entry_whose_test_passes_is_a_problem() -> None:
    _, problems = apply(Expectation("ops/*", "r"))
    assert len(problems) == 1
    assert "passed" in problems[0]
    assert PASSED.test in problems[0]


def test_an_entry_that_matches_nothing_is_a_problem() -> None:
    _, problems = apply(Expectation("ops/test_gone.py::*", "r"))
    assert problems == ("The entry 'ops/test_gone.py::*' matches no test. Correct or remove it.",)


def test_an_entry_that_explains_more_or_fewer_failures_than_it_says_is_a_problem() -> None:
    both = Expectation("*", "r", 2)
    failures = [FAILED, CRASHED]
    assert not expectations.apply([both], failures, {"ops", "tensor"}, partial=False)[1]
    (more,) = expectations.apply([replace(both, count=1)], failures, {"ops", "tensor"}, partial=True)[1]
    assert more == "The entry '*' explains 2 failures, and its count is 1. Correct it."
    (fewer,) = expectations.apply([replace(both, count=3)], failures, {"ops", "tensor"}, partial=False)[1]
    assert fewer == "The entry '*' explains 2 failures, and its count is 3. Correct it."


def test_a_run_of_chosen_tests_may_have_fewer_failures_than_an_entry_says() -> None:
    assert not expectations.apply([Expectation("*", "r", 3)], [FAILED, CRASHED], {"ops", "tensor"}, partial=True)[1]


def test_an_entry_for_what_is_no_level_is_a_problem() -> None:
    _, problems = apply(Expectation("tensors/*", "r"))
    assert "matches no test" in problems[0]


def test_an_entry_for_a_level_that_was_not_run_is_not_judged() -> None:
    assert not apply(Expectation("training/*", "r"))[1]
    assert not apply(Expectation("upstream/*", "r"))[1]


def test_a_run_of_chosen_tests_judges_no_entry_by_what_it_did_not_run() -> None:
    assert not apply(Expectation("ops/test_gone.py::*", "r"), partial=True)[1]


def test_entries_of_another_device_are_left_out(tmp_path: Path) -> None:
    text = """
        [[known]]
        test = "ops/*"
        reason = "r"
        device = "other"
        [[known]]
        test = "tensor/*"
        reason = "r"
        """
    assert read(tmp_path, text) == (Expectation("tensor/*", "r"),)


def test_an_entry_may_name_several_tests(tmp_path: Path) -> None:
    text = """
        [[known]]
        test = ["ops/*", "tensor/*"]
        reason = "r"
        """
    assert read(tmp_path, text) == (Expectation("ops/*", "r"), Expectation("tensor/*", "r"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[known]\n", "is not TOML"),
        ("[[expected]]\ntest = 'a'\nreason = 'b'\n", "'expected'; expected entries"),
        ("[[known]]\ntest = 'a'\n", "entry 1 has no reason"),
        ("[[known]]\nreason = 'a'\n", "entry 1 has no test"),
        ("[[known]]\ntest = []\nreason = 'a'\n", "entry 1 has no test"),
        ("[[known]]\ntest = ['a', 3]\nreason = 'a'\n", "entry 1 has no test"),
        ("[[known]]\ntest = 'a'\nreason = ' '\n", "entry 1 has no reason"),
        ("[[known]]\ntest = 'a'\nreason = 'b'\nwhy = 'c'\n", "the key 'why'"),
        ("[[known]]\ntest = 'a'\nreason = 'b'\ncount = 0\n", "entry 1 has the count 0"),
        ("[[known]]\ntest = 'a'\nreason = 'b'\ncount = '3'\n", "entry 1 has the count '3'"),
        ("known = 3\n", "expected entries"),
        ("known = [3]\n", "entry 1 is 3"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path, text)


def test_the_file_beside_the_library_is_found(tmp_path: Path) -> None:
    device = DeviceDescription("acme", path=str(tmp_path / "libtorch_backend_acme.so"))
    assert Library("acme").known_failures(device) == ()
    read(tmp_path, "[[known]]\ntest = 'ops/*'\nreason = 'r'\n")
    assert Library("acme").known_failures(device) == (Expectation("ops/*", "r"),)
