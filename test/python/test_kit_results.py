"""The verdict on a level and on a device, from the results of tests."""

from xml.etree import ElementTree

import pytest

from torch_backend.testing import LEVELS, DeviceDescription, Level, Report, Result, find_level
from torch_backend.testing.causes import cause
from torch_backend.testing.report import junit
from torch_backend.testing.report.findings import Verdict
from torch_backend.testing.results import Outcome

ABI, TENSOR, OPS, TRAINING, *_ = LEVELS


def report(outcomes: dict[Level, list[Outcome]], **fields: object) -> Report:
    results = [
        Result(f"{level.folder}/test_x.py::test_{number}", outcome)
        for level, ended in outcomes.items()
        for number, outcome in enumerate(ended)
    ]
    return Report(device=DeviceDescription("acme"), results=tuple(results), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["passed"], "passed"),
        (["passed", "not offered"], "passed"),
        (["passed", "known"], "passed"),
        (["known"], "passed"),
        (["not offered"], "not offered"),
        (["passed", "failed"], "failed"),
        (["passed", "crashed"], "failed"),
        (["passed", "hung"], "failed"),
        (["passed", "not run"], "not run"),
        ([], "not run"),
    ],
)
def test_verdict_on_a_level(outcomes: list[Outcome], verdict: Verdict) -> None:
    assert report({ABI: outcomes}).verdict(ABI) == verdict


def test_the_level_reached_has_nothing_failed_below() -> None:
    assert report({ABI: ["passed"], TENSOR: ["passed"], OPS: ["failed"], TRAINING: ["passed"]}).reached == TENSOR
    assert report({ABI: ["failed"], TENSOR: ["passed"]}).reached is None


def test_a_level_that_was_not_run_ends_the_climb() -> None:
    assert report({ABI: ["passed"], OPS: ["passed"]}).reached == ABI


def test_a_level_that_is_not_offered_is_no_obstacle() -> None:
    assert report({ABI: ["passed"], TENSOR: ["not offered"], OPS: ["passed"]}).reached == OPS


def test_chosen_tests_reach_no_level() -> None:
    assert report({ABI: ["passed"]}, only=("test_x",)).reached is None


def test_a_problem_of_the_run_is_no_success() -> None:
    assert report({ABI: ["passed"]}).ok
    assert not report({ABI: ["passed"]}, problems=("pytest ended",)).ok
    assert not report({ABI: ["hung"]}).ok


def test_levels_are_found_by_number_and_name() -> None:
    assert find_level("3") == find_level("ops") == OPS
    with pytest.raises(ValueError, match="There are 1 \\(abi\\), 2"):
        find_level("8")


def test_junit_holds_every_outcome(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    found = report({ABI: ["passed", "failed", "crashed", "known", "not offered", "not run"]}, problems=("bad\x07 run",))
    junit.write(found, tmp_path / "report.xml")
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    suite = root.find("testsuite[@name='abi']")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "2", "3")
    assert len(root.findall(".//failure")) == 2
    assert root.find(".//error").get("message") == "bad run"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("NotImplementedError: Could not run 'aten::foo.bar' with arguments", "no kernel for aten::foo.bar"),
        ("Unexpected success", "PyTorch expects a failure, and the test passes"),
        ("AssertionError: Tensor-likes are not close!", "values differ"),
        ("ModuleNotFoundError: No module named 'scipy.special'", "the module scipy.special is not installed"),
        ("ValueError: 17 is not 18 at 0x7f00", "ValueError: N is not N at N"),
    ],
)
def test_failures_alike_have_one_cause(message: str, expected: str) -> None:
    assert cause(Result("upstream/test_a.py::test_b", "failed", message=message)) == expected
