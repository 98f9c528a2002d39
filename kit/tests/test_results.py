"""The verdict on a level and on a device, from the results of tests."""

import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from fixtures import RunPython
from rich.console import Console
from torch_conformance import LEVELS, DeviceDescription, Level, Report, Result, coverage, find_level
from torch_conformance.levels import DEVICE
from torch_conformance.report import comparison, html, junit, matrix, programs, terminal, treemap
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
        (["passed", "skipped"], "not run"),
        (["failed", "skipped"], "failed"),
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
    assert report({ABI: ["passed"]}, named=True).reached is None


def test_a_level_with_skipped_tests_is_not_reached() -> None:
    assert report({ABI: ["passed"], TENSOR: ["passed", "skipped"]}, skip=("test_1",)).reached == ABI
    only_skipped = report({ABI: ["skipped"]}, skip=("test_0",), only=("test_0",))
    assert only_skipped.verdict_text() == "All of these tests are skipped."


def test_a_level_that_is_reached_says_how_much_does_not_apply() -> None:
    reached = report({ABI: ["passed", "not offered", "not offered"]})
    assert reached.verdict_text().endswith(" Of the tests up to it 2 of 3 are not offered.")
    assert "level 1 abi, 33% offered" in comparison.badge(reached)


def test_a_level_that_is_reached_says_who_serves_operators() -> None:
    sources = ["native", "generated", "fallback", "fallback", "composite", "fallback", "fallback"]
    results = [
        Result(f"{OPS.folder}/test_x.py::test_{n}", "passed", facts={"op": f"op{n}", "source": source})
        for n, source in enumerate(sources)
    ]
    abi = Result(f"{ABI.folder}/test_x.py::test_0", "passed")
    reached = Report(device=DeviceDescription("acme"), results=(abi, *results))
    words = "native 15%, generated 14%, composite 14%, fallback 57%"
    assert f" Operators: {words}." in reached.verdict_text()
    assert "57% fallback<" in comparison.badge(reached)


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
    found = report(
        {ABI: ["passed", "failed", "crashed", "known", "not offered", "not run", "skipped"]}, problems=("bad\x07 run",)
    )
    junit.write(found, tmp_path / "report.xml")
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    suite = root.find("testsuite[@name='abi']")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "2", "4")
    (offered,) = suite.iterfind("properties/property")
    assert (offered.get("name"), offered.get("value")) == ("not offered", "1")
    assert len(root.findall(".//failure")) == 2
    assert root.find(".//error").get("message") == "bad run"  # type: ignore[union-attr]


def test_limits_grow_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(patience.VARIABLE, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (2000.0, 0.0, 0.0))
    assert patience.seconds(3) == 3000
    assert patience.how_busy() == "2000.0 processes wanted the machine's 2 processors"
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 1 << 20)
    assert patience.seconds(3) == 3
    for text, limit in {"5": 15, "0.5": 3, "ever so long": 3}.items():
        monkeypatch.setenv(patience.VARIABLE, text)
        assert patience.seconds(3) == limit


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
                **({"milliseconds": 3.25, "fallback_milliseconds": 0.5} if source == "plugin" else {}),
            },
        )
        for op, source in sources.items()
    ]
    return Report(
        device=DeviceDescription(device),
        results=tuple(results),
        run={"command": "torch-backend check <x>"},
        suite="0123",
        imports=("kernels",),
        again="python -m torch_backend check acme",
    )


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


def test_the_page_has_for_each_failure_a_place_a_command_and_a_program() -> None:
    page = html.render(operators(sin="failed", cos="failed"))
    for op in ("sin", "cos"):
        test = OPERATOR.format(op)
        assert f'id="{test}"' in page
        assert f"python -m torch_backend check acme --only {test}</pre>" in page
        assert f"if op.full_name == &#39;{op}&#39;" in page
    assert page.count('<details class="cause"') == 1


def test_the_page_of_a_device_of_pytorch_has_its_features() -> None:
    device = DeviceDescription("acme", is_library=False, features={"streams": None, "nested": "no <nested> there"})
    page = html.render(replace(operators(add="native"), device=device))
    assert "has it" in page
    assert "no &lt;nested&gt; there" in page
    assert "the number of fallbacks is a lower bound" in page
    assert "exact" in html.render(operators(add="plugin"))


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_a_program_shows_what_the_test_has_found(part: str, run_python: RunPython) -> None:
    result = Result("ops/test_x.py::test_y", "failed", facts={"op": "add", "dtype": "float32", "part": part})
    program = programs.program_for(result, DeviceDescription("cpu", is_library=False), ())
    assert run_python(program).stdout.count("add SampleInput") > 1
    if part == "forward":
        wrong = program.replace("expected = op(", "expected = 1 + op(")
        assert "are not close!" in run_python(wrong, expect=1).stderr
    assert programs.program_for(replace(result, facts={"part": "out"}), DeviceDescription("cpu"), ()) == ""


def test_runs_side_by_side() -> None:
    reports = [operators(add="plugin", sin="failed"), operators("zeta", add="fallback", sin="plugin")]
    page = matrix.render([*reports, report({ABI: ["passed", "not offered", "skipped"]})])
    assert "The runs are of different suites (0123, unknown)" in page
    assert "operators: 1 native, 1 failed" in page
    assert "operators: 1 native, 1 fallback" in page
    assert "<small>1 not offered</small>" in page
    assert '["TestForward::test_forward_add_float32",[0,0,-1]' in page
    assert '["TestForward::test_forward_sin_float32",[1,0,-1],["wrong values","",""]]' in page
    assert "http" not in page  # it loads nothing
    assert comparison.suites_differ(reports) is None


def test_times_that_noise_explains_are_not_shown() -> None:
    def facts(op: str, *times: float) -> list[coverage.Facts]:
        return [{"op": op, "part": "forward", "outcome": "passed", "times_cpu": time} for time in times]

    found = coverage.slowest(
        [*facts("slow", 4, 9, 5), *facts("odd", 2, 90, 80), *facts("once", 50), *facts("twice", 5, 5)]
    )
    assert found == [coverage.Slowness("slow", 4, 5, 9, 3)]


def test_kernels_that_are_slower_than_the_fallback_are_named_with_both_times() -> None:
    def facts(op: str, **times: tuple[float, float]) -> list[coverage.Facts]:
        return [
            {"op": op, "dtype": dtype, "outcome": "passed", "milliseconds": ours, "fallback_milliseconds": cpu}
            for dtype, (ours, cpu) in times.items()
        ]

    tests = [
        *facts("slow", float32=(8, 2), int64=(5, 2)),
        *facts("odd", float32=(9, 1), int64=(1, 1)),
        *facts("near", float32=(1.4, 1)),
        {"op": "other", "dtype": "float32", "outcome": "passed"},
    ]
    found = coverage.slow_kernels(tests)
    assert found == [coverage.SlowKernel("slow", "int64", 5, 2)]


def test_both_reports_name_slow_kernels() -> None:
    found = operators(add="plugin", mul="fallback")
    page = html.render(found)
    assert '<td class="id">add</td><td>float32</td><td class="n">3.250</td><td class="n">0.500</td>' in page
    console = Console(file=io.StringIO(), width=100)
    terminal.show(found, console)
    assert "take longer than the CPU with its copies" in console.file.getvalue()
    assert re.search(r"add \(float32\) +3.250 +0.500", console.file.getvalue())


def test_areas_of_a_treemap() -> None:
    areas = [5.0, 3.0, 1.0, 0.5, 0.5]
    found = treemap.rectangles(areas, ratio=3)
    assert [round(place.width * place.height / 1000, 6) for place in found] == areas
    assert treemap.rectangles([], ratio=3) == []
