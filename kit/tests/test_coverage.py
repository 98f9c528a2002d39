"""torch_conformance.coverage: what results of level ops say about operators. Needs no device."""

from typing import Any

import pytest
from torch_conformance import coverage
from torch_conformance.coverage import Cell, FallbackCost
from torch_conformance.results import Result

from torch_backend.operators import SOURCES


def a_test(op: str, source: str | None = "native", **facts: Any) -> dict[str, Any]:
    usual = {"dtype": "float32", "part": "forward", "outcome": "passed"}
    return {"op": op, "source": source} | usual | facts


def test_every_source_has_a_kind() -> None:
    assert {source: coverage.kind_of(source) for source in SOURCES} == {
        "plugin": "native",
        "generated": "generated",
        "native": "native",
        "aten": "native",
        "extension": "native",
        "composite": "composite",
        "fallback": "fallback",
    }
    assert coverage.kind_of("generated") == "generated"
    with pytest.raises(KeyError):
        coverage.kind_of("unavailable")


def test_facts_are_of_operators() -> None:
    results = [
        Result("ops/a", "passed", facts={"op": "add", "dtype": "int8"}),
        Result("tensor/b", "failed", facts={"bytes": 3}),
        Result("tensor/c", "passed"),
    ]
    assert coverage.facts_of(results) == [{"op": "add", "dtype": "int8", "outcome": "passed"}]


@pytest.mark.parametrize(
    ("sources", "standing"),
    [
        (["plugin", "aten"], "native"),
        (["native", "generated"], "generated"),
        (["generated", "composite", "native"], "composite"),
        (["composite", "fallback"], "fallback"),
        ([None, "native"], "native"),
        ([None], "not offered"),
    ],
)
def test_an_entry_stands_as_its_worst_test(sources: list[str | None], standing: str) -> None:
    counts = coverage.entries_by_standing([a_test("add", source) for source in sources])
    assert {key: count for key, count in counts.items() if count} == {standing: 1}
    assert tuple(counts) == coverage.STANDINGS


@pytest.mark.parametrize("outcome", ["failed", "crashed", "hung", "known"])
def test_an_entry_with_a_failure_has_failed(outcome: str) -> None:
    tests = [a_test("add"), a_test("add", "fallback", outcome=outcome), a_test("mul", outcome="not offered")]
    counts = coverage.entries_by_standing(tests)
    assert (counts["failed"], counts["fallback"], counts["not offered"], counts["native"]) == (1, 0, 1, 0)


def test_what_did_not_pass_serves_nothing() -> None:
    tests = [a_test("add"), a_test("add", "fallback", outcome="not offered"), {"op": "add", "outcome": "not run"}]
    assert coverage.entries_by_standing(tests)["native"] == 1


def test_matrix() -> None:
    tests = [
        a_test("mul", part="backward", source="composite"),
        a_test("mul", "plugin"),
        {"op": "add", "dtype": "int64", "part": "forward", "outcome": "crashed"},
        a_test("add", part="out", dtype="bool"),
    ]
    assert coverage.matrix(tests) == {
        "add": {"int64": {"forward": Cell("crashed", None)}},
        "mul": {"float32": {"forward": Cell("passed", "native"), "backward": Cell("passed", "composite")}},
    }
    assert list(coverage.matrix(tests)) == ["add", "mul"]
    assert coverage.dtypes(tests) == ("float32", "int64")


def test_costliest_fallbacks() -> None:
    tests = [
        a_test("sort", fallbacks={"aten::sort": [2, 100, 0.5], "aten::flip": [1, 50, 0.25]}),
        a_test("sort", part="out", fallbacks={"aten::sort": [1, 10, 0.5]}),
        a_test("topk", fallbacks={"aten::topk": [5, 50, 0.125]}, outcome="failed"),
        a_test("add", fallbacks={}),
        {"op": "mul", "outcome": "crashed"},
    ]
    assert coverage.costliest_fallbacks(tests) == (
        FallbackCost("aten::sort", 3, 110, 1.0),
        FallbackCost("aten::flip", 1, 50, 0.25),
        FallbackCost("aten::topk", 5, 50, 0.125),
    )
    assert coverage.costliest_fallbacks(tests, most=1) == (FallbackCost("aten::sort", 3, 110, 1.0),)
    assert coverage.costliest_fallbacks([]) == ()


def test_columns_are_in_the_order_of_a_table() -> None:
    columns = ["float64", "float32", "bfloat16", "complex64", "int64", "int32", "uint8", "bool", "float8_e4m3fn"]
    tests = [a_test("add", dtype=dtype) for dtype in reversed(columns)]
    assert coverage.dtypes(tests) == tuple(columns)
