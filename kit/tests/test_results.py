"""The verdict on a level and on a device, from the results of tests."""

import json
from xml.etree import ElementTree

import pytest
from torch_conformance import LEVELS, DeviceDescription, Level, Report, Result, find_level
from torch_conformance.causes import cause
from torch_conformance.levels import DEVICE
from torch_conformance.report import comparison, html, junit, treemap
from torch_conformance.report.findings import Verdict
from torch_conformance.results import Outcome

from torch_backend.files import patience

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


def test_a_device_that_does_not_work_reaches_no_level() -> None:
    assert report({DEVICE: ["failed"], ABI: ["passed"]}).reached is None


def test_chosen_tests_reach_no_level() -> None:
    assert report({ABI: ["passed"]}, only=("test_x",)).reached is None


def test_a_problem_of_the_run_is_no_success() -> None:
    assert report({ABI: ["passed"]}).ok
    assert not report({ABI: ["passed"]}, problems=("pytest ended",)).ok
    assert not report({ABI: ["hung"]}).ok


def test_levels_are_found_by_number_and_name() -> None:
    assert find_level("3") == find_level("ops") == OPS
    with pytest.raises(ValueError, match="There are 0 \\(device\\), 1 \\(abi\\), 2"):
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


def test_limits_grow_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (2000.0, 0.0, 0.0))
    assert patience.seconds(3) == 3000
    assert patience.how_busy() == "2000.0 processes wanted the machine's 2 processors"
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 1 << 20)
    assert patience.seconds(3) == 3


# ---- pages and comparisons ----

OPERATOR = "ops/test_forward.py::TestForwardACME::test_forward_{}_acme_float32"


def operators(device: str = "acme", **sources: str) -> Report:
    """A run of forward tests of operators: by name their source, or "failed"."""
    results = [
        Result(
            OPERATOR.format(op).replace("acme", device).replace("ACME", device.upper()),
            "failed" if source == "failed" else "passed",
            message="wrong values" if source == "failed" else "",
            facts={
                "op": op,
                "dtype": "float32",
                "part": "forward",
                "source": None if source == "failed" else source,
                "times_cpu": 2.5,
                "fallbacks": {f"aten::{op}": [1, 8, 0.25]} if source == "fallback" else {},
            },
        )
        for op, source in sources.items()
    ]
    return Report(device=DeviceDescription(device), results=tuple(results), run={"command": "torch-backend check <x>"})


def test_a_report_survives_json() -> None:
    before = operators(add="plugin", mul="fallback")
    assert Report.from_json(json.loads(json.dumps(before.to_json()))) == before
    with pytest.raises(ValueError, match="It is no report of `torch-backend check --json`"):
        Report.from_json({"device": {}})


def test_a_comparison_tells_what_is_worse() -> None:
    old = operators(add="plugin", mul="fallback", sin="plugin", gone="plugin")
    new = operators("zeta", add="fallback", mul="generated", sin="failed", fresh="plugin")
    found = comparison.compare(old, new)
    assert [(change.what, change.old, change.new, change.sense) for change in found.operators] == [
        ("add", "native", "fallback", "worse"),
        ("mul", "fallback", "generated", "better"),
    ]
    (test,) = found.tests
    assert (test.old, test.new, test.sense, test.why) == ("passed", "failed", "worse", "wrong values")
    assert (found.is_worse, found.added, found.removed) == (True, 1, 1)
    assert found.facts["device"] == ("acme", "zeta")
    assert not comparison.compare(old, old).is_worse
    assert "no level" in comparison.badge(new)


def test_the_page_shows_what_the_terminal_says() -> None:
    report = operators(add="fallback", mul="plugin", sin="failed")
    page = html.render(report)
    assert report.verdict_text() in page
    assert "2 passed, 1 failed" in page
    assert "torch-backend check &lt;x&gt;" in page
    assert 'title="aten::add: 1 calls, 0.2500 s"' in page  # in the treemap
    assert 'title="sin, float32, forward: failed"' in page


def test_areas_of_a_treemap() -> None:
    areas = [5.0, 3.0, 1.0, 0.5, 0.5]
    found = treemap.rectangles(areas, ratio=3)
    assert [round(place.width * place.height / 1000, 6) for place in found] == areas
    assert treemap.rectangles([], ratio=3) == []
